#include "anchored.hpp"

#include <algorithm>

namespace aici::regex {
namespace {

// The possible forms of one side of a concatenation, and the assertion of each form.
template <typename Assertion>
struct Way {
  ExprId expr = NOTHING;
  Assertion asserted{};
};
template <typename Assertion>
using Ways = std::array<Way<Assertion>, 2>;

CodePoints word_characters() {
  CodePoints word;
  word.add('0', '9'), word.add('A', 'Z'), word.add('_', '_'), word.add('a', 'z');
  return word;
}

struct Lines {
  Lines(Exprs& arena, Encoding encoding) : exprs(arena) {
    CodePoints all, newline;
    all.add(0, MAX_CODE_POINT), newline.add('\n', '\n');
    text = exprs.repeat(all.to_expr(exprs, encoding), 0, UNBOUNDED), end = newline.to_expr(exprs, encoding);
  }
  ExprId up_to_non_word(Encoding encoding) { return exprs.concat(text, word_characters().negated().to_expr(exprs, encoding)); }
  ExprId from_non_word(Encoding encoding) { return exprs.concat(word_characters().negated().to_expr(exprs, encoding), text); }
  ExprId up_to_end() { return exprs.concat(text, end); }
  ExprId from_end() { return exprs.concat(end, text); }

  Exprs& exprs;
  ExprId text, end;
};

ExprId only_empty(Exprs& exprs, ExprId e) { return exprs.nullable(e) ? EMPTY : NOTHING; }

}  // namespace

bool Anchored::is_nothing() const {
  return std::ranges::all_of(exprs_, [](ExprId e) { return e == NOTHING; });
}

bool Anchored::asserts() const {
  return std::any_of(exprs_.begin() + 1, exprs_.end(), [](ExprId e) { return e != NOTHING; });
}

// If `second` asserts something about its beginning, then `first` is empty, and the assertion holds for both together,
// or `first` ends such that the assertion holds; the same in the other direction.
Anchored Anchored::concat(Exprs& exprs, Encoding encoding, const Anchored& first, const Anchored& second) {
  if (!first.asserts() && !second.asserts()) return exprs.concat(first.plain(), second.plain());
  Anchored result;
  for (size_t i = 0; i < first.exprs_.size(); i++)
    for (size_t j = 0; j < second.exprs_.size(); j++) {
      if (first.exprs_[i] == NOTHING || second.exprs_[j] == NOTHING) continue;
      auto begin = static_cast<Begin>(i / ENDS), inner_begin = static_cast<Begin>(j / ENDS);
      auto inner_end = static_cast<End>(i % ENDS), end = static_cast<End>(j % ENDS);
      Ways<Begin> lefts{Way<Begin>{first.exprs_[i], begin}};
      if (inner_begin != Begin::Anywhere) lefts[0] = {only_empty(exprs, first.exprs_[i]), std::max(begin, inner_begin)};
      if (inner_begin == Begin::NonWord) lefts[1] = {exprs.both(first.exprs_[i], Lines(exprs, encoding).up_to_non_word(encoding)), begin};
      if (inner_begin == Begin::Line) lefts[1] = {exprs.both(first.exprs_[i], Lines(exprs, encoding).up_to_end()), begin};
      Ways<End> rights{Way<End>{second.exprs_[j], end}};
      if (inner_end != End::Anywhere) rights[0] = {only_empty(exprs, second.exprs_[j]), std::max(end, inner_end)};
      if (inner_end == End::NonWord) rights[1] = {exprs.both(second.exprs_[j], Lines(exprs, encoding).from_non_word(encoding)), end};
      if (inner_end == End::Line) rights[1] = {exprs.both(second.exprs_[j], Lines(exprs, encoding).from_end()), end};
      if (inner_end == End::LastLine) rights[1] = {exprs.both(second.exprs_[j], Lines(exprs, encoding).end), End::Text};
      for (auto [left, new_begin] : lefts)
        for (auto [right, new_end] : rights) {
          if (left == NOTHING || right == NOTHING) continue;
          ExprId& place = result.at(new_begin, new_end);
          place = exprs.alt({place, exprs.concat(left, right)});
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

bool Anchored::asserts_begin() const {
  return std::any_of(exprs_.begin() + ENDS, exprs_.end(), [](ExprId e) { return e != NOTHING; });
}

bool Anchored::is_end_of_text(End end) const {
  if (is_nothing()) return false;
  for (size_t i = 0; i < exprs_.size(); i++)
    if (exprs_[i] != NOTHING && (exprs_[i] != EMPTY || i >= ENDS || std::max(static_cast<End>(i), end) != End::Text)) return false;
  return true;
}

bool Anchored::ends_the_text() const {
  for (size_t i = 0; i < exprs_.size(); i++)
    if (exprs_[i] != NOTHING && static_cast<End>(i % ENDS) != End::Text) return false;
  return !is_nothing();
}

Anchored Anchored::up_to_end(Exprs& exprs, Encoding encoding, End end) const {
  Lines lines(exprs, encoding);
  ExprId after[] = {lines.text, exprs.alt({EMPTY, lines.from_non_word(encoding)}), exprs.alt({EMPTY, lines.from_end()}), exprs.alt({EMPTY, lines.end}), EMPTY};
  Anchored result;
  for (size_t i = 0; i < exprs_.size(); i++) {
    ExprId& place = result.at(static_cast<Begin>(i / ENDS), End::Text);
    place = exprs.alt({place, exprs.concat(exprs_[i], after[std::max(i % ENDS, static_cast<size_t>(end))])});
  }
  return result;
}

Anchored Anchored::within(Exprs& exprs, ExprId texts) const {
  Anchored result;
  for (size_t i = 0; i < exprs_.size(); i++)
    if (exprs_[i] != NOTHING) result.exprs_[i] = exprs.both(exprs_[i], texts);
  return result;
}

Anchored Anchored::beginning(Begin begin) const {
  Anchored result;
  auto first = static_cast<ptrdiff_t>(begin) * static_cast<ptrdiff_t>(ENDS);
  std::copy_n(exprs_.begin() + first, ENDS, result.exprs_.begin() + first);
  return result;
}

Anchored Anchored::elsewhere() const {
  Anchored result = *this;
  std::fill(result.exprs_.end() - ENDS, result.exprs_.end(), NOTHING);
  return result;
}

ExprId Anchored::whole(Exprs& exprs) const {
  return exprs.alt({exprs_.begin(), exprs_.end()});
}

ExprId Anchored::anywhere(Exprs& exprs, Encoding encoding) const {
  Lines lines(exprs, encoding);
  ExprId before[] = {lines.text, exprs.alt({EMPTY, lines.up_to_non_word(encoding)}), exprs.alt({EMPTY, lines.up_to_end()}), EMPTY};
  ExprId after[] = {lines.text, exprs.alt({EMPTY, lines.from_non_word(encoding)}), exprs.alt({EMPTY, lines.from_end()}), exprs.alt({EMPTY, lines.end}), EMPTY};
  std::vector<ExprId> ways;
  for (size_t i = 0; i < exprs_.size(); i++)
    ways.push_back(exprs.concat(before[i / ENDS], exprs.concat(exprs_[i], after[i % ENDS])));
  return exprs.alt(ways);
}

}  // namespace aici::regex
