// The structure of a pattern: alternatives, sequences, quantifiers, groups.
#include "aici/regex/parser.hpp"

#include "aici/utf8.hpp"
#include "parser_state.hpp"

namespace aici::regex {

ExprId Parser::pattern() {
  ignore_case_ = accept("(?i)");
  accept('^');
  ExprId expr = alternation();
  if (!problem_ && !done()) return refuse(at_, "unmatched ')'");
  return problem_ ? NOTHING : expr;
}

bool Parser::accept(std::string_view literal) {
  for (size_t i = 0; i < literal.size(); i++)
    if (peek(i) != static_cast<uint8_t>(literal[i])) return false;
  at_ += literal.size();
  return true;
}

ExprId Parser::alternation() {
  std::vector<ExprId> ways;
  do ways.push_back(sequence());
  while (!problem_ && accept('|'));
  return problem_ ? NOTHING : exprs_.alt(ways);
}

ExprId Parser::sequence() {
  std::vector<ExprId> parts;
  while (!problem_ && !done() && peek() != '|' && peek() != ')') {
    if (peek() == '$' && at_ + 1 == text_.size()) {
      at_++;
      break;
    }
    parts.push_back(quantified());
  }
  if (problem_) return NOTHING;
  ExprId expr = EMPTY;
  for (size_t i = parts.size(); i-- > 0;) expr = exprs_.concat(parts[i], expr);
  return expr;
}

ExprId Parser::quantified() {
  ExprId body = atom();
  if (problem_) return NOTHING;
  uint32_t min = 1, max = 1;
  if (!counts(min, max)) return problem_ ? NOTHING : body;
  accept('?');  // lazy: which match is preferred does not change what matches
  if (peek() == '+') return refuse(at_, "possessive quantifiers are not supported");
  if (peek() == '*' || peek() == '?' || peek() == '{') return refuse(at_, "a quantifier follows a quantifier: put the first in a group");
  return exprs_.repeat(body, min, max);
}

// Reads a quantifier if there is one.
bool Parser::counts(uint32_t& min, uint32_t& max) {
  size_t start = at_;
  if (accept('*')) return min = 0, max = UNBOUNDED, true;
  if (accept('+')) return min = 1, max = UNBOUNDED, true;
  if (accept('?')) return min = 0, max = 1, true;
  if (!accept('{')) return false;
  bool well_formed = number(min);
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
  if (peek() < '0' || peek() > '9') return false;
  for (value = 0; peek() >= '0' && peek() <= '9'; at_++)
    if (value <= MAX_COUNT) value = value * 10 + (peek() - '0');
  return true;
}

ExprId Parser::atom() {
  size_t start = at_;
  uint32_t c = text_[at_];
  switch (c) {
    case '(':
      return group();
    case '[':
      return char_class();
    case '\\': {
      Item item = escape();
      if (problem_) return NOTHING;
      if (item.set) return any_of(*item.set);
      c = item.code_point;
      break;
    }
    case '.': {
      at_++;
      CodePoints newline;
      newline.add('\n', '\n');
      return newline.negated().to_expr(exprs_);
    }
    case '*':
    case '+':
    case '?':
      return refuse(start, "nothing to repeat");
    case '{':
      return refuse(start, "'{' is not a character here: write \\{");
    case '^':
      return refuse(start, "'^' is supported only at the start of the pattern: write \\^ for the character");
    case '$':
      return refuse(start, "'$' is supported only at the end of the pattern: write \\$ for the character");
    default:
      at_++;
  }
  CodePoints single;
  single.add(c, c);
  return any_of(single);
}

ExprId Parser::group() {
  struct Refused {
    std::string_view opening, message;
  };
  static constexpr Refused REFUSED[] = {
      {"(?=", "look-ahead is not supported"},
      {"(?!", "look-ahead is not supported"},
      {"(?<=", "look-behind is not supported"},
      {"(?<!", "look-behind is not supported"},
      {"(?<", "named groups are not supported: write (?:...)"},
      {"(?P=", "back-references are not supported"},
      {"(?P", "named groups are not supported: write (?:...)"},
      {"(?>", "atomic groups are not supported"},
      {"(?#", "comments are not supported"},
      {"(?(", "conditional groups are not supported"},
      {"(?|", "branch reset groups are not supported"},
      {"(?", "flags are not supported, but for (?i) at the start of the pattern"},
  };
  size_t start = at_;
  if (!accept("(?:")) {
    for (const Refused& refused : REFUSED)
      if (accept(refused.opening)) return refuse(start, refused.message);
    accept('(');
  }
  if (++depth_ > MAX_DEPTH) return refuse(start, "groups are nested deeper than 200");
  ExprId expr = alternation();
  depth_--;
  if (!problem_ && !accept(')')) return refuse(start, "missing ')' for this group");
  return expr;
}

ExprId parse(std::string_view pattern, Exprs& exprs, std::optional<Problem>& problem) {
  std::vector<uint32_t> text;
  if (std::optional<size_t> bad_byte = decode_utf8(pattern, text)) {
    problem = Problem{static_cast<uint32_t>(*bad_byte), Text("the pattern is not UTF-8")};
    return NOTHING;
  }
  return Parser(static_cast<std::vector<uint32_t>&&>(text), exprs, problem).pattern();
}

Text describe(const Problem& problem, std::string_view pattern) {
  constexpr size_t CONTEXT = 40;
  std::vector<uint32_t> text;
  decode_utf8(pattern, text);
  size_t first = problem.position > CONTEXT ? problem.position - CONTEXT : 0;
  Text out("regex error at position ");
  out << problem.position << ": " << problem.message << "\n  ";
  for (size_t i = first; i < text.size() && i < problem.position + CONTEXT; i++)
    encode_utf8(text[i] < 0x20 || text[i] == 0x7F ? 0xB7 : text[i], out);  // one column each, whatever it is
  out << "\n  ";
  for (size_t i = first; i < problem.position; i++) out << ' ';
  return out << '^';
}

}  // namespace aici::regex
