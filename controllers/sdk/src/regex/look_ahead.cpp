// Look-around as intersection: in (?=L)R and (?!L)R the text from here to its end is in R, and in L or not.
#include <algorithm>
#include <utility>

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
    look.expr = looked_for(start);
  } else if (looking_at("(?<!") || looking_at("(?<=")) {
    look.look = looking_at("(?<!") ? Quantified::Look::NotBehind : Quantified::Look::Behind;
    at_ += 4;
    look.expr = looked_for(start);
  } else {
    return std::nullopt;
  }
  last_look_ = look.start = start;
  if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') refuse(at_, "a repeated assertion is not supported");
  return look;
}

Anchored Parser::looked_for(size_t start) {
  look_depth_++;
  bool leads = std::exchange(leads_, false);
  Anchored expr = group_body(start, flags_);
  leads_ = leads;
  look_depth_--;
  return expr;
}

// ((?!L).)*, with any class in place of the point.
std::optional<Parser::Quantified> Parser::look_inside() {
  size_t start = at_;
  if (!ecma() || (!looking_at("((?!") && !looking_at("(?:(?!"))) return std::nullopt;
  at_ += looking_at("(?:") ? 3 : 1;
  std::optional<Quantified> look = look_ahead();
  bool is_single = !problem_ && look && !is_one_character(look->expr.plain()) && !done() && peek() != '(' && peek() != '|' && peek() != ')' && peek() != '^' && peek() != '$';
  if (is_single) {
    Anchored character = atom();
    uint32_t min = 1, max = 1;
    if (!problem_ && accept(')') && counts(min, max) && !problem_) {
      accept('?');
      Quantified inside{exprs_.repeat(character.plain(), min, max)};
      inside.look = Quantified::Look::NotInside, inside.inside = static_cast<uint32_t>(insides_.size());
      insides_.push_back(look->expr);
      return inside;
    }
  }
  at_ = start;
  problem_.reset();
  return std::nullopt;
}

// The assertion about the end of the sequence that ends here, if nothing but the end of groups and $ follows. Groups may
// be optional. Other alternatives of the groups do not count.
std::optional<End> Parser::end_of_pattern() const {
  if (look_depth_ > 0) return std::nullopt;
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
      if (at + 1 < text_.size() && text_[at + 1] == '?') at++;
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

// Whether every text of `e` begins with a text of `e` of one character.
bool Parser::is_one_character(ExprId e) {
  CodePoints all;
  all.add(0, MAX_CODE_POINT);
  ExprId first = exprs_.concat(exprs_.both(e, any_of(all)), any_text());
  return e != NOTHING && exprs_.both(exprs_.concat(e, any_text()), exprs_.complement(first)) == NOTHING;
}

// Whether nothing but assertions and the start of groups comes between ^ and the assertion at `start`.
bool Parser::is_at_start(std::span<const Quantified> before, size_t start) const {
  bool anchored = false;
  for (const Quantified& part : before) {
    bool is_look = part.look == Quantified::Look::Ahead || part.look == Quantified::Look::NotAhead;
    if (!is_look && part.expr != Anchored::assertion(Begin::Text, End::Anywhere)) return false;
    anchored |= !is_look;
    if (is_look) start = std::min(start, part.start);
  }
  for (size_t at = 0; at < start && !anchored; at++) {
    if (text_[at] == '^') return std::ranges::all_of(std::span(text_).subspan(at, start - at), [](uint32_t c) { return c == '^' || c == '('; });
    if (text_[at] != '(') return false;
  }
  return anchored;
}

// Join the parts before a look-behind, back to ^ or to another assertion, into one part that ends with a text of the
// assertion, or does not. Returns the number of this part. `leads`: nothing comes before the first part.
size_t Parser::look_behind(std::vector<Quantified>& parts, size_t at, bool leads) {
  Quantified look = parts[at];
  size_t from = at;
  while (from > 0 && parts[from - 1].look == Quantified::Look::None && parts[from - 1].expr != Anchored::assertion(Begin::Text, End::Anywhere)) from--;
  Anchored before = EMPTY;
  for (size_t i = at; i-- > from;) before = Anchored::concat(exprs_, options_.encoding, parts[i].expr, before);
  ExprId plain = look.expr.plain(), ending = exprs_.concat(any_text(), plain);
  if (look.expr.asserts()) return refuse(*last_look_, "an anchor in a look-behind is not supported"), at;
  if (!is_at_start({parts.data(), from}, look.start) && !is_no_longer(plain, before.whole(exprs_))) {
    if (!leads || from > 0) {
      refuse(*last_look_, "a look-behind is supported behind parts that are as long, or that begin with ^ or with the pattern");
      return at;
    }
    Anchored start = Anchored::concat(exprs_, options_.encoding, Anchored::assertion(Begin::Text, End::Anywhere), any_text());
    before = Anchored::concat(exprs_, options_.encoding, start, before);
  }
  parts[from] = {before.within(exprs_, look.look == Quantified::Look::Behind ? ending : exprs_.complement(ending))};
  parts.erase(parts.begin() + static_cast<ptrdiff_t>(from) + 1, parts.begin() + static_cast<ptrdiff_t>(at) + 1);
  return from;
}

// Whether no text of `e` has more characters than a text of `other`; false if the texts are long.
bool Parser::is_no_longer(ExprId e, ExprId other) {
  constexpr uint32_t LONG = 8;
  CodePoints all;
  all.add(0, MAX_CODE_POINT);
  ExprId character = any_of(all);
  for (uint32_t most = 0; most <= LONG; most++)
    if (exprs_.both(e, exprs_.complement(exprs_.repeat(character, 0, most))) == NOTHING)
      return most == 0 || exprs_.both(other, exprs_.repeat(character, 0, most - 1)) == NOTHING;
  return false;
}

// `rest` behind an assertion, which stands behind `before`.
Anchored Parser::looking(const Quantified& look, std::span<const Quantified> before, const Anchored& rest) {
  if (look.look == Quantified::Look::Boundary) return at_boundary(before.empty() || before.back().look != Quantified::Look::None ? Anchored() : before.back().expr, rest);
  bool negative = look.look != Quantified::Look::Ahead;
  auto allowed = [&](ExprId texts) { return negative ? exprs_.complement(texts) : texts; };
  // One character decides: the rest of the sequence itself has the character.
  ExprId plain = look.expr.plain();
  bool is_ahead = look.look != Quantified::Look::NotInside && !look.expr.asserts();
  if (is_ahead && !exprs_.nullable(rest.whole(exprs_)) && is_one_character(plain)) {
    ExprId texts = allowed(exprs_.concat(plain, any_text()));
    return rest.within(exprs_, texts);
  }
  std::optional<End> end = rest.ends_the_text() ? End::Text : end_of_pattern();
  if (!end) return refuse(*last_look_, "this assertion stands in a group, and more than ) and $ follows the group: not supported");
  if (look.look == Quantified::Look::NotInside) {
    ExprId inside = up_to_end(insides_[look.inside]);
    if (!rest.is_end_of_text(*end) || exprs_.nullable(inside) || insides_[look.inside].asserts_begin())
      return refuse(*last_look_, "a look-ahead in a repetition is supported before the $ at the end only");
    ExprId texts = exprs_.complement(exprs_.concat(any_text(), inside));
    return look.expr.up_to_end(exprs_, options_.encoding, End::Text).within(exprs_, texts);
  }
  Anchored all = rest.up_to_end(exprs_, options_.encoding, *end);
  if (!negative) {
    // What L asserts about its beginning, such as (?=^L), is asserted here.
    std::vector<Anchored> ways;
    for (Begin begin : {Begin::Anywhere, Begin::NonWord, Begin::Line, Begin::Text}) {
      ExprId texts = up_to_end(look.expr.beginning(begin));
      ways.push_back(Anchored::concat(exprs_, options_.encoding, Anchored::assertion(begin, End::Anywhere), all.within(exprs_, texts)));
    }
    return Anchored::alt(exprs_, ways);
  }
  ExprId everywhere = up_to_end(look.expr.beginning(Begin::Anywhere)), at_start = up_to_end(look.expr);
  if (at_start == everywhere || all.elsewhere().is_nothing() || is_at_start(before, look.start)) return all.within(exprs_, exprs_.complement(at_start));
  return refuse(*last_look_, "(?!^...) is supported before ^ only");
}

// \b where a word character is surely on one side: on the other side is none.
Anchored Parser::at_boundary(const Anchored& before, const Anchored& rest) {
  ExprId other = any_of(named_set('w').negated());
  auto none = [&](const Anchored& part, ExprId wrong) {
    ExprId whole = part.whole(exprs_);
    return whole != NOTHING && exprs_.both(whole, exprs_.alt({EMPTY, wrong})) == NOTHING;
  };
  Anchored assertion = Anchored::assertion(Begin::NonWord, End::Anywhere);
  if (!none(rest, exprs_.concat(other, any_text()))) {
    if (!none(before, exprs_.concat(any_text(), other))) return refuse(*last_look_, "\\b is supported before or behind a word character only");
    assertion = Anchored::assertion(Begin::Anywhere, End::NonWord);
  }
  return Anchored::concat(exprs_, options_.encoding, assertion, rest);
}

}  // namespace aici::regex
