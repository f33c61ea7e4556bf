#include "anchored.hpp"

#include <algorithm>

namespace aici::regex {
namespace {

struct Way {
  ExprId expr;
  End end;
};

ExprId only_empty(Exprs& exprs, ExprId e) { return exprs.nullable(e) ? EMPTY : NOTHING; }

}  // namespace

bool Anchored::is_nothing() const {
  return std::ranges::all_of(exprs_, [](ExprId e) { return e == NOTHING; });
}

bool Anchored::asserts() const {
  return std::any_of(exprs_.begin() + 1, exprs_.end(), [](ExprId e) { return e != NOTHING; });
}

// Where `second` asserts something about its begin, `first` is empty and what it asserts holds for both together, or
// `first` ends such that it holds; and the same the other way round.
std::optional<Anchored> Anchored::concat(Exprs& exprs, const Anchored& first, const Anchored& second) {
  Anchored result;
  for (size_t i = 0; i < first.exprs_.size(); i++)
    for (size_t j = 0; j < second.exprs_.size(); j++) {
      ExprId x = first.exprs_[i], y = second.exprs_[j];
      if (x == NOTHING || y == NOTHING) continue;
      auto begin = static_cast<Begin>(i / ENDS), inner_begin = static_cast<Begin>(j / ENDS);
      auto inner_end = static_cast<End>(i % ENDS), end = static_cast<End>(j % ENDS);
      bool needs_lines = (inner_begin == Begin::Line && x != EMPTY) || (inner_end == End::Line && y != EMPTY);
      if (needs_lines) return std::nullopt;
      if (inner_begin != Begin::Anywhere) x = only_empty(exprs, x), begin = std::max(begin, inner_begin);
      Way ways[] = {{y, end}, {NOTHING, end}};
      if (inner_end != End::Anywhere) ways[0] = {only_empty(exprs, y), std::max(end, inner_end)};
      if (inner_end == End::LastLine && exprs.nullable(exprs.derive(y, '\n')))
        ways[1] = {exprs.bytes(ByteSet::range('\n', '\n')), End::Text};
      for (Way way : ways) {
        ExprId& place = result.at(begin, way.end);
        ExprId both = exprs.concat(x, way.expr);
        place = place == NOTHING ? both : exprs.alt({place, both});
      }
    }
  return result;
}

Anchored Anchored::alt(Exprs& exprs, std::span<const Anchored> members) {
  Anchored result;
  for (size_t i = 0; i < result.exprs_.size(); i++) {
    std::vector<ExprId> ways;
    for (const Anchored& member : members)
      if (member.exprs_[i] != NOTHING) ways.push_back(member.exprs_[i]);
    result.exprs_[i] = exprs.alt(ways);
  }
  return result;
}

ExprId Anchored::whole(Exprs& exprs) const {
  return exprs.alt({exprs_.begin(), exprs_.end()});
}

ExprId Anchored::anywhere(Exprs& exprs, Encoding encoding) const {
  CodePoints all, newline;
  all.add(0, MAX_CODE_POINT), newline.add('\n', '\n');
  ExprId text = exprs.repeat(all.to_expr(exprs, encoding), 0, UNBOUNDED), line_end = newline.to_expr(exprs, encoding);
  ExprId before[] = {text, exprs.alt({EMPTY, exprs.concat(text, line_end)}), EMPTY};
  ExprId after[] = {text, exprs.alt({EMPTY, exprs.concat(line_end, text)}), exprs.alt({EMPTY, line_end}), EMPTY};
  std::vector<ExprId> ways;
  for (size_t i = 0; i < exprs_.size(); i++)
    ways.push_back(exprs.concat(before[i / ENDS], exprs.concat(exprs_[i], after[i % ENDS])));
  return exprs.alt(ways);
}

}  // namespace aici::regex
