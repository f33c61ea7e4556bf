// The structure of a pattern: alternatives, sequences, anchors, quantifiers.
#include "aici/regex/parser.hpp"

#include "aici/utf8.hpp"
#include "parser_state.hpp"

namespace aici::regex {

ExprId Parser::pattern() {
  global_flags();
  Anchored parsed = alternation();
  if (!problem_ && !done()) return refuse(at_, "unmatched ')'");
  if (problem_) return NOTHING;
  if (exprs_.error()) return refuse(0, exprs_.error());
  if (parsed.is_nothing() && !last_anchor_) return refuse(0, "the pattern matches no text");
  if (parsed.is_nothing()) return refuse(*last_anchor_, "this anchor never holds here: the pattern matches no text");
  return options_.search ? parsed.anywhere(exprs_, options_.encoding) : parsed.whole(exprs_);
}

bool Parser::looking_at(std::string_view literal) const {
  for (size_t i = 0; i < literal.size(); i++)
    if (peek(i) != static_cast<uint8_t>(literal[i])) return false;
  return true;
}

Anchored Parser::alternation() {
  std::vector<Anchored> ways;
  bool leads = leads_;
  do ways.push_back(sequence(leads));
  while (!problem_ && accept('|'));
  leads_ = leads;
  return problem_ ? NOTHING : Anchored::alt(exprs_, ways);
}

// From the right, since concatenations lean right.
Anchored Parser::sequence(bool leads) {
  std::vector<Quantified> parts;
  for (skip_ignored(); !problem_ && !done() && peek() != '|' && peek() != ')' && !(in_both_ && peek() == '&'); skip_ignored()) {
    leads_ = leads && parts.empty();
    Quantified next = quantified();
    if (parts.empty() || !join(parts.back(), next)) parts.push_back(next);
  }
  if (problem_) return NOTHING;
  for (size_t i = 0; i < parts.size(); i++)
    if (parts[i].look == Quantified::Look::Behind || parts[i].look == Quantified::Look::NotBehind) i = look_behind(parts, i, leads);
  Anchored expr = EMPTY;
  for (size_t i = parts.size(); i-- > 0;)
    expr = parts[i].look != Quantified::Look::None ? looking(parts[i], {parts.data(), i}, expr)
                                                    : Anchored::concat(exprs_, options_.encoding, parts[i].expr, expr);
  return expr;
}

// x?x? is x{0,2}: n optional parts in sequence would make an automaton of n * n steps.
bool Parser::join(Quantified& last, const Quantified& next) {
  constexpr uint32_t MOST = 1 << 30;
  bool is_counted = last.min != 1 || last.max != 1 || next.min != 1 || next.max != 1;
  if (problem_ || last.look != Quantified::Look::None || next.look != Quantified::Look::None || last.body == NOTHING || last.body != next.body || !is_counted || last.min > MOST) return false;
  if (last.max != UNBOUNDED && last.max > MOST) return false;
  bool is_bounded = last.max != UNBOUNDED && next.max != UNBOUNDED;
  last.min += next.min, last.max = is_bounded ? last.max + next.max : UNBOUNDED;
  last.expr = exprs_.repeat(last.body, last.min, last.max);
  return true;
}

Parser::Quantified Parser::quantified() {
  size_t start = at_;
  if (std::optional<Anchored> assertion = anchor()) {
    last_anchor_ = start;
    skip_ignored();
    if (peek() == '*' || peek() == '+' || peek() == '?') return {refuse(at_, "nothing to repeat")};
    return {*assertion};
  }
  if (std::optional<Quantified> look = look_ahead()) return *look;
  if (std::optional<Quantified> look = look_inside()) return *look;
  Anchored body = atom();
  if (problem_) return {};
  skip_ignored();
  size_t quantifier = at_;
  uint32_t min = 1, max = 1;
  if (!counts(min, max)) return {body, body.asserts() ? NOTHING : body.plain()};
  accept('?');  // lazy: a preference among matches does not change the set of matches
  if (peek() == '+') return {refuse(at_, "possessive quantifiers are not supported")};
  skip_ignored();
  if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{')
    return {refuse(at_, "a quantifier follows a quantifier: put the first in a group")};
  if (max == 0) return {EMPTY};
  if (!body.asserts()) return {exprs_.repeat(body.plain(), min, max), body.plain(), min, max};
  if (max > 1) return {refuse(quantifier, "anchors in a repetition are not supported")};
  Anchored optional[] = {EMPTY, body};
  return {min == 1 ? body : Anchored::alt(exprs_, optional)};
}

std::optional<Anchored> Parser::anchor() {
  if (accept('^')) return Anchored::assertion(flags_.multi_line ? Begin::Line : Begin::Text, End::Anywhere);
  // The $ of `re` also holds before a \n at the end of the text.
  End end = flags_.multi_line ? End::Line : ecma() ? End::Text : End::LastLine;
  if (accept('$')) return Anchored::assertion(Begin::Anywhere, end);
  // ECMA-262 has no such anchors, but no other meaning of these escapes either.
  if (accept("\\A")) return Anchored::assertion(Begin::Text, End::Anywhere);
  if (accept("\\Z") || accept("\\z")) return Anchored::assertion(Begin::Anywhere, End::Text);
  return std::nullopt;
}

// Reads a quantifier if there is one.
bool Parser::counts(uint32_t& min, uint32_t& max) {
  size_t start = at_;
  if (accept('*')) return min = 0, max = UNBOUNDED, true;
  if (accept('+')) return min = 1, max = UNBOUNDED, true;
  if (accept('?')) return min = 0, max = 1, true;
  if (!accept('{')) return false;
  bool well_formed = number(min);
  if (!well_formed && peek() == ',' && !ecma()) well_formed = true, min = 0;
  max = min;
  if (well_formed && accept(',')) {
    max = UNBOUNDED;
    if (peek() != '}') well_formed = number(max);
  }
  if (!well_formed || !accept('}')) {
    refuse(start, "'{' does not start a repeat count such as {2}, {2,} or {2,5}: write \\{ for the character");
  } else if (min > MAX_COUNT || (max != UNBOUNDED && max > MAX_COUNT)) {
    refuse(start, "a repeat count is above 100000");
  } else if (min > max) {
    refuse(start, "the least repeat count is above the greatest");
  }
  return !problem_;
}

bool Parser::number(uint32_t& value) {
  if (!is_digit(peek())) return false;
  for (value = 0; is_digit(peek()); at_++)
    if (value <= MAX_COUNT) value = value * 10 + (peek() - '0');
  return true;
}

Anchored Parser::atom() {
  size_t start = at_;
  uint32_t c = text_[at_];
  Item item;
  if (std::optional<ExprId> known = known_class()) return *known;
  switch (c) {
    case '(':
      return group();
    case '[':
      return remember_class(start, char_class());
    case '*':
    case '+':
    case '?':
      return refuse(start, "nothing to repeat");
    case '{':
      return refuse(start, "'{' is not a character here: write \\{");
    case '.': {
      at_++;
      CodePoints excluded;
      if (!flags_.dot_all) excluded.add('\n', '\n');
      if (ecma() && !flags_.dot_all) excluded.add('\r', '\r'), excluded.add(0x2028, 0x2029);
      return any_of(excluded.negated());
    }
    case '\\':
      item = escape(false);
      break;
    default:
      at_++;
      item.code_point = c;
  }
  if (problem_) return NOTHING;
  if (item.set) {
    ExprId expr = any_of(*item.set);
    return expr == NOTHING ? refuse(start, "the class matches no character") : remember_class(start, expr);
  }
  CodePoints single;
  single.add(item.code_point, item.code_point);
  return any_of(either_case(single));
}

ExprId parse(std::string_view pattern, Exprs& exprs, std::optional<Problem>& problem, ParseOptions options) {
  std::vector<uint32_t> text;
  if (std::optional<size_t> bad_byte = decode_utf8(pattern, text)) {
    problem = Problem{static_cast<uint32_t>(*bad_byte), Text("the pattern is not UTF-8")};
    return NOTHING;
  }
  return Parser(static_cast<std::vector<uint32_t>&&>(text), exprs, problem, options).pattern();
}

}  // namespace aici::regex
