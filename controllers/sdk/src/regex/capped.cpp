// Remove counts that no token can exhaust.
#include "aici/regex/expr.hpp"

namespace aici::regex {
namespace {

// Limits of the search: parts of a list, and levels of alternatives in a part. Counts beyond stay as they are.
constexpr int MAX_DEPTH = 6;
constexpr uint32_t MAX_WAYS = 16;

}  // namespace

ExprId Exprs::capped(ExprId e, uint32_t longest) { return capped(e, longest, 0); }

// Never inside intersections and complements, where a later count can decide what is allowed here.
ExprId Exprs::capped(ExprId e, uint32_t longest, int depth) {
  if (depth == MAX_DEPTH) return e;
  Node node = nodes_[e];
  switch (node.kind) {
    case Kind::Concat: {
      ExprId head = capped(node.a, longest, depth + 1), tail = capped(node.b, longest, depth + 1);
      return head == node.a && tail == node.b ? e : concat(head, tail);
    }
    case Kind::Alt: {
      if (node.b > MAX_WAYS) return e;
      std::vector<ExprId> ways;
      bool changed = false;
      for (uint32_t i = 0; i < node.b; i++) {
        ways.push_back(capped(members_[node.a + i], longest, depth + 1));
        changed |= ways.back() != members_[node.a + i];
      }
      return changed ? alt(static_cast<std::vector<ExprId>&&>(ways)) : e;
    }
    case Kind::Repeat:
      // Every turn takes at least a byte. After `longest` turns nothing that follows can be in the same token.
      if (node.c == UNBOUNDED && node.b <= longest) return e;
      if (node.c < longest || nullable(node.a)) return e;
      return repeat(node.a, node.b < longest ? node.b : longest, UNBOUNDED);
    case Kind::Unique:
      return forgotten(uniques_[node.a]);
    default:
      return e;
  }
}

std::optional<Exprs::Counted> Exprs::as_counted(ExprId e) const {
  const Node& node = nodes_[e];
  const Node& head = node.kind == Kind::Concat ? nodes_[node.a] : node;
  if (head.kind != Kind::Repeat) return std::nullopt;
  return Counted{head.a, node.kind == Kind::Concat ? node.b : EMPTY, head.b, head.c};
}

}  // namespace aici::regex
