#include "aici/regex/expr.hpp"

#include <algorithm>
#include <string_view>

#include "aici/sort.hpp"

namespace aici::regex {

Exprs::Exprs() {
  add({Kind::Nothing, false, false, 0, 0, 0});
  add({Kind::Empty, true, false, 0, 0, 0});
  all_ = repeat(bytes(ByteSet::all()), 0, UNBOUNDED);
}

void Exprs::reserve(size_t num) {
  node_table_.reserve(num);
  nodes_.reserve(num), members_.reserve(num), memo_.reserve(num), memo_round_.reserve(num);
}

uint32_t Exprs::hash(const Node& node) const {
  uint32_t hash = static_cast<uint32_t>(node.kind);
  auto mix = [&hash](uint32_t word) { hash = (hash ^ word) * 0x9E3779B1u, hash ^= hash >> 15; };
  if (has_members(node)) {
    for (ExprId member : members(node)) mix(member);
  } else {
    mix(node.a), mix(node.b), mix(node.c);
  }
  return hash;
}

bool Exprs::equal(const Node& x, const Node& y) const {
  if (x.kind != y.kind) return false;
  if (has_members(x)) return std::ranges::equal(members(x), members(y));
  return x.a == y.a && x.b == y.b && x.c == y.c;
}

ExprId Exprs::add(const Node& node) {
  return node_table_.find_or_add(
      hash(node), [&](uint32_t id) { return equal(nodes_[id], node); },
      [&] {
        nodes_.push_back(node);
        nodes_.back().is_finite = is_finite(node);
        return static_cast<uint32_t>(nodes_.size() - 1);
      });
}

bool Exprs::is_finite(const Node& node) const {
  switch (node.kind) {
    case Kind::Nothing:
    case Kind::Empty:
    case Kind::Bytes:
      return true;
    case Kind::Concat:
      return nodes_[node.a].is_finite && nodes_[node.b].is_finite;
    case Kind::Alt:
      return std::ranges::all_of(members(node), [this](ExprId member) { return nodes_[member].is_finite; });
    case Kind::Repeat:
      return node.c != UNBOUNDED && nodes_[node.a].is_finite;
    case Kind::And:
      return std::ranges::any_of(members(node), [this](ExprId member) { return nodes_[member].is_finite; });
    default:
      return is_value(node);
  }
}

ExprId Exprs::bytes(const ByteSet& set) {
  if (set.empty()) return NOTHING;
  uint32_t number = set_table_.find_or_add(
      set.hash(), [&](uint32_t id) { return sets_[id] == set; },
      [&] {
        sets_.push_back(set);
        return static_cast<uint32_t>(sets_.size() - 1);
      });
  return add({Kind::Bytes, false, false, number, 0, 0});
}

ExprId Exprs::concat(ExprId first, ExprId second) {
  if (first == NOTHING || second == NOTHING) return NOTHING;
  if (first == EMPTY) return second;
  if (second == EMPTY) return first;
  // Kept as a right-leaning list, whose parts are unrolled here without recursion: patterns can be long.
  std::vector<ExprId> parts;
  for (; nodes_[first].kind == Kind::Concat; first = nodes_[first].b) parts.push_back(nodes_[first].a);
  parts.push_back(first);
  for (size_t i = parts.size(); i-- > 0;) {
    // x* x* is x*: else ambiguous rules such as e: e "+" e would stack up one for each part of the text.
    const Node& part = nodes_[parts[i]];
    bool is_star = part.kind == Kind::Repeat && part.b == 0 && part.c == UNBOUNDED;
    if (is_star && (parts[i] == second || (nodes_[second].kind == Kind::Concat && nodes_[second].a == parts[i]))) continue;
    bool has_rules = nodes_[parts[i]].has_rules || nodes_[second].has_rules;
    second = add({Kind::Concat, nullable(parts[i]) && nullable(second), has_rules, parts[i], second, 0});
  }
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
  return add({Kind::Repeat, min == 0, nodes_[body].has_rules, body, min, max});
}

// Sort `candidates`, the members of an alternation or intersection, and look the whole up.
ExprId Exprs::intern_members(Kind kind, const std::vector<ExprId>& candidates) {
  std::vector<ExprId> sorted(candidates);
  auto order = [](ExprId x, ExprId y) { return x < y; };
  sort(sorted, order);
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  if (sorted.empty()) return kind == Kind::Alt ? NOTHING : all_;
  if (sorted.size() == 1) return sorted[0];
  bool any_nullable = false, all_nullable = true, has_rules = false;
  for (ExprId e : sorted) {
    any_nullable |= nullable(e), all_nullable &= nullable(e);
    has_rules |= nodes_[e].has_rules;
  }
  auto first = static_cast<uint32_t>(members_.size());
  members_.insert(members_.end(), sorted.begin(), sorted.end());
  size_t before = nodes_.size();
  bool is_nullable = kind == Kind::Alt ? any_nullable : all_nullable;
  ExprId id = add({kind, is_nullable, has_rules, first, static_cast<uint32_t>(sorted.size()), 0});
  if (nodes_.size() == before) members_.resize(first);  // already known: the members were only needed for the lookup
  return id;
}

std::vector<uint8_t> Exprs::byte_classes() const {
  std::vector<uint8_t> classes(256, 0);
  unsigned num_classes = 1;
  std::array<uint16_t, 257> total{256};  // bytes of each class
  std::vector<ByteSet> sets(sets_);
  if (!digits_.empty())
    for (char byte : std::string_view(".0123456789")) sets.push_back(ByteSet::of(static_cast<uint8_t>(byte)));
  for (const ByteSet& set : sets) {
    // The part of each class inside the set moves to a new class, unless the part is the whole class.
    std::array<uint16_t, 256> inside{}, moved{};
    auto each = [&set](auto visit) {
      for (unsigned i = 0; i < 8; i++)
        for (uint32_t bits = set.word(i); bits; bits &= bits - 1) visit(i * 32 + static_cast<unsigned>(__builtin_ctz(bits)));
    };
    each([&](unsigned byte) { inside[classes[byte]]++; });
    each([&](unsigned byte) {
      uint8_t old = classes[byte];
      if (moved[old]) return void(classes[byte] = static_cast<uint8_t>(moved[old]));
      if (inside[old] == total[old]) return;
      moved[old] = static_cast<uint16_t>(num_classes), total[num_classes] = inside[old], total[old] -= inside[old];
      classes[byte] = static_cast<uint8_t>(num_classes++);
    });
  }
  return classes;
}

}  // namespace aici::regex
