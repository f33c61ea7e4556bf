// Forms of expressions used by masks.
#include "aici/regex/expr.hpp"

namespace aici::regex {
namespace {

constexpr uint32_t MAX_PARTS = 8;
constexpr uint32_t MAX_SIZE = 24;  // nodes of a part
constexpr int MAX_DEPTH = 6;
constexpr size_t MAX_WAYS = 128;
constexpr uint32_t KEPT = 8;  // of so many ends of a list, about one is kept
constexpr int MAX_BYTES = 16;  // of a set: a larger set covers too much of a vocabulary

int num_bytes(const ByteSet& set) {
  int num = 0;
  for (size_t i = 0; i < 8; i++) num += __builtin_popcount(set.word(i));
  return num;
}

}  // namespace

bool Exprs::is_small(ExprId e, uint32_t& budget, int depth) const {
  if (budget == 0 || depth == 0) return false;
  budget--;
  const Node& node = nodes_[e];
  switch (node.kind) {
    case Kind::Empty:
      return true;
    case Kind::Bytes:
      return num_bytes(sets_[node.a]) <= MAX_BYTES;
    case Kind::Repeat:
      return is_small(node.a, budget, depth - 1);
    case Kind::Concat:
      return is_small(node.a, budget, depth - 1) && is_small(node.b, budget, depth - 1);
    case Kind::Alt:
      for (ExprId member : members(node))
        if (!is_small(member, budget, depth - 1)) return false;
      return true;
    default:
      return false;
  }
}

// If a list begins with optional parts, such as optional properties or further items, its possible continuations stand
// side by side. Most begin with the same white space, which alternation makes their common head.
//
// A text that goes on asks for the ends of one list, one after the other. So the results for some ends, which their
// numbers choose, are kept, and a longer end adds its own continuations to a shorter one.
ExprId Exprs::ways_apart(ExprId e) {
  std::vector<ExprId> lists;
  ExprId end = e;
  for (; lists.size() < MAX_WAYS; end = nodes_[end].b) {
    if (end < apart_.size() && apart_[end] != NOTHING) {
      end = apart_[end];
      break;
    }
    if (!begins_with_option(end)) break;
    lists.push_back(end);
  }
  bool is_whole = lists.size() < MAX_WAYS;
  std::vector<ExprId> ways;
  for (size_t i = lists.size(); i-- > 0;) {
    add_ways(lists[i], ways);
    if (i > 0 && (lists[i] % KEPT != 0 || !is_whole)) continue;
    ways.push_back(end);
    end = alt(ways);
    ways.clear();
    if (!is_whole) continue;
    if (apart_.size() <= lists[i]) apart_.resize(nodes_.size());
    apart_[lists[i]] = end;
  }
  return end;
}

bool Exprs::begins_with_option(ExprId e) const {
  if (nodes_[e].kind != Kind::Concat) return false;
  const Node& part = nodes_[nodes_[e].a];
  uint32_t budget = MAX_SIZE;
  return part.nullable && (part.kind == Kind::Alt || (part.kind == Kind::Repeat && !nullable(part.a))) &&
         !is_small(nodes_[e].a, budget, MAX_DEPTH);
}

// The continuations of a list that begin with its first part.
void Exprs::add_ways(ExprId e, std::vector<ExprId>& ways) {
  ExprId rest = nodes_[e].b;
  Node part = nodes_[nodes_[e].a];
  if (part.kind == Kind::Repeat) {
    ways.push_back(concat(part.a, concat(repeat(part.a, 0, part.c == UNBOUNDED ? UNBOUNDED : part.c - 1), rest)));
    return;
  }
  for (uint32_t i = 0; i < part.b; i++)
    if (ExprId way = members_[part.a + i]; way != EMPTY) ways.push_back(concat(way, rest));
}

std::optional<Exprs::Split> Exprs::split(ExprId e) {
  ExprId parts[MAX_PARTS];
  uint32_t num_parts = 0;
  auto take_parts = [&] {
    while (num_parts < MAX_PARTS && nodes_[e].kind == Kind::Concat) {
      ExprId part = nodes_[e].a;
      uint32_t budget = MAX_SIZE;
      if (!nullable(part) || !is_small(part, budget, MAX_DEPTH)) break;
      parts[num_parts++] = part;
      e = nodes_[e].b;
    }
  };
  take_parts();  // perhaps the digits of a number, before the list
  e = ways_apart(e);
  take_parts();
  if (num_parts == 0) return std::nullopt;
  Split split{EMPTY, e};
  while (num_parts > 0) split.head = concat(parts[--num_parts], split.head);
  return split;
}

ExprId Exprs::without_exceptions(ExprId e, int depth) const {
  if (depth == MAX_DEPTH) return NOTHING;
  const Node& node = nodes_[e];
  ExprId found = NOTHING;
  switch (node.kind) {
    case Kind::Concat:
      return without_exceptions(node.a, depth + 1);
    case Kind::Alt:
      for (uint32_t i = 0; i < node.b && found == NOTHING; i++) found = without_exceptions(members_[node.a + i], depth + 1);
      return found;
    case Kind::And:
      for (ExprId member : members(node)) {
        if (nodes_[member].kind == Kind::Not && nodes_[nodes_[member].a].is_finite) continue;
        if (found != NOTHING) return NOTHING;
        found = member;
      }
      return found;
    default:
      return NOTHING;
  }
}

}  // namespace aici::regex
