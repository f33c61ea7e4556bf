#include "aici/regex/expr.hpp"

namespace aici::regex {

ExprId Exprs::derive(ExprId e, uint8_t byte) {
  round_++;
  memo_.resize(nodes_.size());
  memo_round_.resize(nodes_.size());
  return derive_new(e, byte);
}

// Recursion goes into parts of e only, all of them older than this round, so the memo is large enough. Its depth is the
// nesting of the pattern, which the parser bounds, not its length.
ExprId Exprs::derive_new(ExprId e, uint8_t byte) {
  if (memo_round_[e] == round_) return memo_[e];
  Node node = nodes_[e];
  ExprId result = NOTHING;
  switch (node.kind) {
    case Kind::Nothing:
    case Kind::Empty:
      break;
    case Kind::Bytes:
      result = sets_[node.a].has(byte) ? EMPTY : NOTHING;
      break;
    case Kind::Concat: {
      std::vector<ExprId> ways;
      ExprId rest = e;
      for (;;) {
        Node part = nodes_[rest];
        if (part.kind != Kind::Concat || memo_round_[rest] == round_) {
          ways.push_back(derive_new(rest, byte));
          break;
        }
        ways.push_back(concat(derive_new(part.a, byte), part.b));
        if (!nullable(part.a)) break;
        rest = part.b;
      }
      result = ways.size() == 1 ? ways[0] : alt(ways);
      break;
    }
    case Kind::Alt: {
      std::vector<ExprId> ways;
      for (uint32_t i = 0; i < node.b; i++) ways.push_back(derive_new(members_[node.a + i], byte));
      result = alt(ways);
      break;
    }
    case Kind::Repeat: {
      // A nullable body has a minimum of 0 (see repeat), so taking one turn away is right for it as well.
      uint32_t max = node.c == UNBOUNDED ? UNBOUNDED : node.c - 1;
      ExprId turn = derive_new(node.a, byte);
      result = turn == NOTHING ? NOTHING : concat(turn, repeat(node.a, node.b ? node.b - 1 : 0, max));
      break;
    }
  }
  memo_round_[e] = round_;
  return memo_[e] = result;
}

}  // namespace aici::regex
