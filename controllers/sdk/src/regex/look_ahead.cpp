// Look-ahead as intersection: in (?=L)R and (?!L)R the text from here to its end is in R, and in L or not.
#include "parser_state.hpp"

namespace aici::regex {

std::optional<Parser::Quantified> Parser::look_ahead() {
  if (!ecma()) return std::nullopt;
  size_t start = at_;
  Quantified look;
  if (accept("\\b")) {
    look.look = Quantified::Look::Boundary;
  } else if (looking_at("(?!") || looking_at("(?=")) {
    look.look = looking_at("(?!") ? Quantified::Look::NotAhead : Quantified::Look::Ahead;
    at_ += 3;
    look.expr = group_body(start, flags_);
    if (!problem_ && look.expr.asserts_begin()) refuse(start, "a look-ahead that begins with ^ is not supported");
  } else {
    return std::nullopt;
  }
  last_look_ = start;
  if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') refuse(at_, "a repeated assertion is not supported");
  return look;
}

// ((?!L).)*, with any class in place of the point.
std::optional<Parser::Quantified> Parser::look_inside() {
  size_t start = at_;
  if (!ecma() || (!looking_at("((?!") && !looking_at("(?:(?!"))) return std::nullopt;
  at_ += looking_at("(?:") ? 3 : 1;
  std::optional<Quantified> look = look_ahead();
  bool is_single = !problem_ && !done() && peek() != '(' && peek() != '|' && peek() != ')' && peek() != '^' && peek() != '$';
  if (is_single) {
    Anchored character = atom();
    uint32_t min = 1, max = 1;
    if (!problem_ && accept(')') && counts(min, max) && !problem_) {
      accept('?');
      Quantified inside{exprs_.repeat(character.plain(), min, max)};
      inside.look = Quantified::Look::NotInside, inside.inside = look->expr;
      return inside;
    }
  }
  at_ = start;
  problem_.reset();
  return std::nullopt;
}

// The assertion about the end of the sequence that ends here, if nothing but the end of groups and $ follows. Other
// alternatives of the groups do not count.
std::optional<End> Parser::end_of_pattern() const {
  End end = End::Anywhere;
  bool in_alternative = false;
  size_t depth = 0;  // of groups in other alternatives
  for (size_t at = at_; at < text_.size(); at++) {
    uint32_t c = text_[at];
    if (c == '\\') {
      at++;
    } else if (c == '[') {
      for (at++; at < text_.size() && text_[at] != ']'; at++) at += text_[at] == '\\';
    } else if (c == '(') {
      depth++;
    } else if (depth > 0) {
      depth -= c == ')';
      continue;
    } else if (c == '|') {
      in_alternative = true;
    } else if (c == ')') {
      in_alternative = false;
      continue;
    }
    if (in_alternative) continue;
    if (c != '$' || flags_.multi_line) return std::nullopt;
    end = End::Text;
  }
  return end;
}

ExprId Parser::any_text() {
  CodePoints all;
  all.add(0, MAX_CODE_POINT);
  return exprs_.repeat(any_of(all), 0, UNBOUNDED);
}

// `rest` behind an assertion, which stands behind `before`.
Anchored Parser::looking(const Quantified& look, const Anchored& before, const Anchored& rest) {
  using Look = Quantified::Look;
  ExprId not_expr = NOTHING, texts = exprs_.all();
  if (look.look == Look::Boundary) {
    ExprId word = any_of(named_set('w')), other = any_of(named_set('w').negated());
    ExprId all = rest.whole(exprs_), last = before.whole(exprs_);
    auto none = [&](ExprId e, ExprId wrong) { return e != NOTHING && exprs_.both(e, exprs_.alt({EMPTY, wrong})) == NOTHING; };
    if (none(all, exprs_.concat(other, any_text())))
      return Anchored::concat(exprs_, options_.encoding, Anchored::assertion(Begin::NonWord, End::Anywhere), rest);
    if (!none(last, exprs_.concat(any_text(), other))) return refuse(*last_look_, "\\b is supported before or behind a word character only");
    not_expr = up_to_end(word);
  }
  std::optional<End> end = end_of_pattern();
  if (!end) return refuse(*last_look_, "this assertion stands in a group, and more than ) and $ follows the group: not supported");
  if (look.look == Look::Ahead) texts = up_to_end(look.expr);
  if (look.look == Look::NotAhead) not_expr = up_to_end(look.expr);
  if (look.look == Look::NotInside) {
    ExprId inside = up_to_end(look.inside);
    if (!rest.is_end_of_text(*end) || exprs_.nullable(inside)) return refuse(*last_look_, "a look-ahead in a repetition is supported before the $ at the end only");
    return look.expr.up_to_end(exprs_, options_.encoding, End::Text).within(exprs_, exprs_.complement(exprs_.concat(any_text(), inside)));
  }
  if (not_expr != NOTHING) texts = exprs_.complement(not_expr);
  return rest.up_to_end(exprs_, options_.encoding, *end).within(exprs_, texts);
}

}  // namespace aici::regex
