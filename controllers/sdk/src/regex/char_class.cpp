// The characters of a pattern: escapes and classes.
#include "parser_state.hpp"

namespace aici::regex {
namespace {

bool is_alphanumeric(uint32_t c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The sets of \d, \w and \s: ASCII.
CodePoints named_set(uint32_t letter) {
  CodePoints set;
  if (letter == 's') {
    set.add('\t', '\r');
    set.add(' ', ' ');
    return set;
  }
  set.add('0', '9');
  if (letter == 'd') return set;
  set.add('A', 'Z');
  set.add('a', 'z');
  set.add('_', '_');
  return set;
}

std::string_view why_refused(uint32_t letter) {
  switch (letter) {
    case 'b':
    case 'B':
      return "word boundaries are not supported";
    case 'A':
    case 'Z':
    case 'z':
    case 'G':
      return "anchors are not supported: the whole text has to match anyway";
    case 'p':
    case 'P':
      return "Unicode properties are not supported";
    case 'k':
    case 'g':
      return "back-references are not supported";
    default:
      return letter >= '1' && letter <= '9' ? "back-references are not supported" : "unknown escape";
  }
}

}  // namespace

// At a backslash.
Parser::Item Parser::escape() {
  size_t start = at_++;
  uint32_t c = peek();
  if (c == END) return refuse(start, "a backslash at the end of the pattern"), Item{};
  at_++;
  switch (c) {
    case 'd':
    case 'w':
    case 's':
      return {0, named_set(c)};
    case 'D':
    case 'W':
    case 'S':
      return {0, named_set(c + ('a' - 'A')).negated()};
    case 'n':
      return {'\n'};
    case 't':
      return {'\t'};
    case 'r':
      return {'\r'};
    case 'f':
      return {'\f'};
    case 'v':
      return {'\v'};
    case '0':
      if (peek() >= '0' && peek() <= '9') return refuse(start, "octal escapes are not supported: write \\xHH"), Item{};
      return {0};
    case 'x':
    case 'u': {
      std::optional<uint32_t> code_point = hex(start, c == 'x' ? 2 : 4);
      return {code_point.value_or(0)};
    }
    default:
      if (c >= 0x80 || is_alphanumeric(c)) return refuse(start, why_refused(c)), Item{};
      return {c};
  }
}

std::optional<uint32_t> Parser::hex(size_t start, int num_digits) {
  uint32_t value = 0;
  for (int i = 0; i < num_digits; i++, at_++) {
    uint32_t c = peek();
    uint32_t lower = c | 0x20;
    if (c >= '0' && c <= '9') {
      value = value * 16 + (c - '0');
    } else if (c < 0x80 && lower >= 'a' && lower <= 'f') {
      value = value * 16 + (lower - 'a' + 10);
    } else {
      refuse(start, num_digits == 2 ? "\\x needs two hexadecimal digits" : "\\u needs four hexadecimal digits");
      return std::nullopt;
    }
  }
  if (value >= 0xD800 && value <= 0xDFFF) {
    refuse(start, "a surrogate is not a character: write the character itself");
    return std::nullopt;
  }
  return value;
}

ExprId Parser::char_class() {
  size_t start = at_++;
  bool negated = accept('^');
  CodePoints set;
  // A ] at the start is a character.
  for (bool first = true; first || peek() != ']'; first = false) {
    size_t item_start = at_;
    Item low = class_item(start);
    if (problem_) return NOTHING;
    bool is_range = peek() == '-' && peek(1) != ']' && peek(1) != END;
    if (!is_range) {
      if (low.set) {
        set.add(*low.set);
      } else {
        set.add(low.code_point, low.code_point);
      }
      continue;
    }
    if (peek(1) == '-') return refuse(at_, "set operations are not supported: write \\- for the character");
    at_++;
    Item high = class_item(start);
    if (problem_) return NOTHING;
    if (low.set || high.set) return refuse(item_start, "a class such as \\d cannot be an end of a range");
    if (low.code_point > high.code_point) return refuse(item_start, "the range is reversed");
    set.add(low.code_point, high.code_point);
  }
  at_++;
  if (ignore_case_) set = set.either_case();
  ExprId expr = (negated ? set.negated() : set).to_expr(exprs_);
  return expr == NOTHING ? refuse(start, "the class matches no character") : expr;
}

Parser::Item Parser::class_item(size_t start) {
  uint32_t c = peek();
  if (c == END) return refuse(start, "missing ']' for this class"), Item{};
  if (c == '\\') return escape();
  if (c == '[' && (peek(1) == ':' || peek(1) == '.' || peek(1) == '='))
    return refuse(at_, "POSIX classes are not supported: write \\[ for the character"), Item{};
  if (c == peek(1) && (c == '-' || c == '&' || c == '~' || c == '|'))
    return refuse(at_, "set operations are not supported: put \\ before the character"), Item{};
  at_++;
  return {c};
}

}  // namespace aici::regex
