#include "aici/regex/expr.hpp"

#include <algorithm>

namespace aici::regex {

Exprs::Exprs() {
  add({Kind::Nothing, false, 0, 0, 0});
  add({Kind::Empty, true, 0, 0, 0});
}

uint32_t Exprs::hash(const Node& node) const {
  uint32_t hash = static_cast<uint32_t>(node.kind);
  auto mix = [&hash](uint32_t word) { hash = (hash ^ word) * 0x9E3779B1u, hash ^= hash >> 15; };
  if (node.kind == Kind::Alt) {
    for (ExprId member : members(node)) mix(member);
  } else {
    mix(node.a), mix(node.b), mix(node.c);
  }
  return hash;
}

bool Exprs::equal(const Node& x, const Node& y) const {
  if (x.kind != y.kind) return false;
  if (x.kind == Kind::Alt) return std::ranges::equal(members(x), members(y));
  return x.a == y.a && x.b == y.b && x.c == y.c;
}

ExprId Exprs::add(const Node& node) {
  return node_table_.find_or_add(
      hash(node), [&](uint32_t id) { return equal(nodes_[id], node); },
      [&] {
        nodes_.push_back(node);
        return static_cast<uint32_t>(nodes_.size() - 1);
      },
      [&](uint32_t id) { return hash(nodes_[id]); });
}

ExprId Exprs::bytes(const ByteSet& set) {
  if (set.empty()) return NOTHING;
  uint32_t number = set_table_.find_or_add(
      set.hash(), [&](uint32_t id) { return sets_[id] == set; },
      [&] {
        sets_.push_back(set);
        return static_cast<uint32_t>(sets_.size() - 1);
      },
      [&](uint32_t id) { return sets_[id].hash(); });
  return add({Kind::Bytes, false, number, 0, 0});
}

ExprId Exprs::concat(ExprId first, ExprId second) {
  if (first == NOTHING || second == NOTHING) return NOTHING;
  if (first == EMPTY) return second;
  if (second == EMPTY) return first;
  // Kept as a list that leans right, whose parts are unrolled here without recursion: patterns can be long.
  std::vector<ExprId> parts;
  for (; nodes_[first].kind == Kind::Concat; first = nodes_[first].b) parts.push_back(nodes_[first].a);
  parts.push_back(first);
  for (size_t i = parts.size(); i-- > 0;)
    second = add({Kind::Concat, nullable(parts[i]) && nullable(second), parts[i], second, 0});
  return second;
}

ExprId Exprs::repeat(ExprId body, uint32_t min, uint32_t max) {
  if (max == 0 || body == EMPTY) return EMPTY;
  if (body == NOTHING) return min == 0 ? EMPTY : NOTHING;
  if (nullable(body)) {
    min = 0;
    // (x|)* is x*
    if (nodes_[body].kind == Kind::Alt) {
      std::vector<ExprId> rest;
      for (ExprId member : members(nodes_[body]))
        if (member != EMPTY) rest.push_back(member);
      if (rest.size() < nodes_[body].b) return repeat(alt(rest), 0, max);
    }
  }
  if (nodes_[body].kind == Kind::Repeat && nodes_[body].b <= 1 && nodes_[body].c == UNBOUNDED)
    return repeat(nodes_[body].a, min, UNBOUNDED);
  if (min == 1 && max == 1) return body;
  if (min == 0 && max == 1) return nullable(body) ? body : alt({EMPTY, body});
  return add({Kind::Repeat, min == 0, body, min, max});
}

// Parts are always older than the whole, so one pass down finds what is in use and one pass up copies it. The order of the
// numbers stays, and with it the order of the members of alternations.
Exprs Exprs::copy_of(std::span<ExprId> roots) const {
  std::vector<ExprId> moved(nodes_.size(), NOTHING);
  constexpr ExprId WANTED = UINT32_MAX;
  for (ExprId root : roots) moved[root] = WANTED;
  for (size_t id = nodes_.size(); id-- > 0;) {
    const Node& node = nodes_[id];
    if (moved[id] != WANTED) continue;
    if (node.kind == Kind::Alt) {
      for (ExprId member : members(node)) moved[member] = WANTED;
    } else if (node.kind == Kind::Concat) {
      moved[node.a] = moved[node.b] = WANTED;
    } else if (node.kind == Kind::Repeat) {
      moved[node.a] = WANTED;
    }
  }
  Exprs copy;
  for (size_t id = 0; id < nodes_.size(); id++) {
    if (moved[id] != WANTED) continue;
    Node node = nodes_[id];
    if (node.kind == Kind::Bytes) {
      moved[id] = copy.bytes(sets_[node.a]);
      continue;
    }
    if (node.kind == Kind::Alt) {
      node.a = static_cast<uint32_t>(copy.members_.size());
      for (ExprId member : members(nodes_[id])) copy.members_.push_back(moved[member]);
    } else if (node.kind == Kind::Concat) {
      node.a = moved[node.a], node.b = moved[node.b];
    } else if (node.kind == Kind::Repeat) {
      node.a = moved[node.a];
    }
    moved[id] = copy.add(node);
  }
  for (ExprId& root : roots) root = moved[root];
  return copy;
}

std::vector<uint8_t> Exprs::byte_classes() const {
  std::vector<uint8_t> classes(256, 0);
  unsigned num_classes = 1;
  for (const ByteSet& set : sets_) {
    // Of each class, the part inside the set moves to a new class, unless it is the whole class.
    std::vector<unsigned> inside(256, 0), total(256, 0), moved(256, 0);
    for (unsigned byte = 0; byte < 256; byte++) total[classes[byte]]++, inside[classes[byte]] += set.has(static_cast<uint8_t>(byte));
    for (unsigned byte = 0; byte < 256; byte++) {
      uint8_t old = classes[byte];
      if (!set.has(static_cast<uint8_t>(byte)) || inside[old] == total[old]) continue;
      if (!moved[old]) moved[old] = num_classes++;
      classes[byte] = static_cast<uint8_t>(moved[old]);
    }
  }
  return classes;
}

}  // namespace aici::regex
