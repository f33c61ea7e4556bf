#include "aici/regex/expr.hpp"

namespace aici::regex {
namespace {

// Deeper nesting does not fit on a guest's stack. The parser's limit on groups stays below.
constexpr uint32_t MAX_DEPTH = 1000;
// Members of alternations made for one derivative, about 0.1 µs each. A text that can be read in ever more ways would
// take them beyond all bounds.
constexpr uint64_t MAX_TERMS = 3'000'000;

}  // namespace

ExprId Exprs::derive(ExprId e, uint8_t byte, ByteSet& alike) {
  uint32_t outer_round = round_;
  ByteSet outer_alike = alike_;
  round_ = ++last_round_;
  alike_ = ByteSet::all();
  if (outer_round == 0) last_term_ = alt_terms_ + MAX_TERMS;
  if (memo_.size() < nodes_.size()) {
    // Reserve in advance: every round makes a few nodes, and each growth would copy the nodes.
    memo_.resize(nodes_.size() + nodes_.size() / 4);
    memo_round_.resize(memo_.size());
  }
  ExprId result = derive_new(e, byte);
  alike = alike_;
  alike_ = outer_alike;
  round_ = outer_round;
  return result;
}

// Recursion only enters parts of e, which are older than this round, so the memo is large enough. Its depth is the
// nesting of the pattern and of rules that begin with rules, not the length of the pattern.
ExprId Exprs::derive_new(ExprId e, uint8_t byte) {
  if (memo_round_[e] == round_) return memo_[e];
  if (depth_ >= MAX_DEPTH) return fail("expressions are nested too deep"), NOTHING;
  depth_++;
  Node node = nodes_[e];
  ExprId result = NOTHING;
  switch (node.kind) {
    case Kind::Nothing:
    case Kind::Empty:
      break;
    case Kind::Bytes: {
      const ByteSet& set = sets_[node.a];
      bool inside = set.has(byte);
      alike_ = alike_ & (inside ? set : ~set);
      result = inside ? EMPTY : NOTHING;
      break;
    }
    case Kind::Concat:
      result = derive_concat(e, byte);
      break;
    case Kind::Alt: {
      std::vector<ExprId> ways;
      for (uint32_t i = 0; i < node.b; i++) {
        ExprId way = derive_new(members_[node.a + i], byte);
        if (way != NOTHING) ways.push_back(way);
      }
      result = ways.empty() ? NOTHING : ways.size() == 1 ? ways[0] : alt(static_cast<std::vector<ExprId>&&>(ways));
      break;
    }
    case Kind::Repeat: {
      // A nullable body has a minimum of 0 (see repeat), so removing one turn is right for a nullable body too.
      uint32_t max = node.c == UNBOUNDED ? UNBOUNDED : node.c - 1;
      ExprId turn = derive_new(node.a, byte);
      result = turn == NOTHING ? NOTHING : concat(turn, repeat(node.a, node.b ? node.b - 1 : 0, max));
      break;
    }
    case Kind::And: {
      std::vector<ExprId> all;
      for (uint32_t i = 0; i < node.b && (all.empty() || all.back() != NOTHING); i++)
        all.push_back(derive_new(members_[node.a + i], byte));
      result = all.back() == NOTHING ? NOTHING : both(static_cast<std::vector<ExprId>&&>(all));
      break;
    }
    case Kind::Not:
      result = complement(derive_new(node.a, byte));
      break;
    case Kind::Digits:
      result = derive_digits(node, byte);
      break;
    case Kind::Unique:
      result = derive_unique(node, byte);
      break;
    case Kind::Rule:
      result = derive_rule(node, byte);
      break;
    case Kind::Entries:
      result = derive_entries(node, byte);
      break;
    case Kind::Key:
      result = derive_key(node, byte);
      break;
    case Kind::Name:
      result = derive_name(node, byte);
      break;
    case Kind::Value:
      result = derive_value(node, byte);
      break;
  }
  depth_--;
  memo_round_[e] = round_;
  return memo_[e] = result;
}

// A right-leaning list, perhaps long: no recursion along the list.
ExprId Exprs::derive_concat(ExprId e, uint8_t byte) {
  std::vector<ExprId> ways;
  for (ExprId rest = e;;) {
    Node part = nodes_[rest];
    if (part.kind != Kind::Concat || memo_round_[rest] == round_) {
      ExprId way = derive_new(rest, byte);
      if (way != NOTHING) ways.push_back(way);
      break;
    }
    ExprId head = derive_new(part.a, byte);
    if (head != NOTHING) ways.push_back(concat(head, part.b));
    if (!nullable(part.a)) break;
    rest = part.b;
  }
  return ways.empty() ? NOTHING : ways.size() == 1 ? ways[0] : alt(static_cast<std::vector<ExprId>&&>(ways));
}

}  // namespace aici::regex
