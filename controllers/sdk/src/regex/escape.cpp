// Escapes: everything that starts with a backslash.
#include "parser_state.hpp"
#include "unicode.hpp"

namespace aici::regex {
namespace {

std::string_view why_refused(uint32_t letter) {
  switch (letter) {
    case 'b':
    case 'B':
      return "word boundaries are not supported";
    case 'A':
    case 'Z':
    case 'z':
    case 'G':
      return "this anchor is not supported here";
    case 'k':
    case 'g':
      return "back-references are not supported";
    case 'N':
      return "character names are not supported: write \\u{...}";
    case 'X':
      return "grapheme clusters are not supported";
    case 'R':
      return "'\\R' is not supported: write (?:\\r\\n|\\n|\\r)";
    default:
      return is_digit(letter) ? "back-references are not supported" : "unknown escape";
  }
}

}  // namespace

// At a backslash.
Parser::Item Parser::escape(bool in_class) {
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
      return {0, named_set(c | 0x20).negated()};
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
    case 'x':
    case 'u':
    case 'U':
      return {code_point(start, c, in_class).value_or(0)};
    case 'a':
      if (!ecma()) return {'\a'};
      break;
    case 'p':
    case 'P':
      return property(start);
    case 'b':
      if (in_class) return {'\b'};
      break;
    case 'c':
      if (!ecma() || !is_letter(peek())) break;
      return {text_[at_++] & 0x1F};
    default:
      if (is_digit(c)) return octal(start, in_class);
      if (c < 0x80 && !is_letter(c)) return {c};
  }
  return refuse(start, why_refused(c)), Item{};
}

// After \p or \P: one letter, or a name in braces.
Parser::Item Parser::property(size_t start) {
  bool negated = text_[start + 1] == 'P';
  Text name;
  if (is_letter(peek())) {
    name << static_cast<char>(text_[at_++]);
  } else {
    if (!accept('{')) return refuse(start, "\\p needs a name, such as \\p{L} or \\p{Greek}"), Item{};
    if (accept('^')) negated = !negated;
    for (; peek() != '}' && peek() < 0x80; at_++) name << static_cast<char>(peek());
    if (!accept('}')) return refuse(start, "missing '}' after the name of this property"), Item{};
  }
  std::optional<CodePoints> set = unicode_property(name.view());
  if (!set) return refuse(start, "unknown property: general categories such as Lu and scripts such as Greek are known"), Item{};
  CodePoints cases = either_case(*set);
  return {0, negated ? cases.negated() : cases};
}

// \0 and at most two octal digits, or three octal digits; in a class, one to three. All other digits are
// back-references.
Parser::Item Parser::octal(size_t start, bool in_class) {
  size_t num_digits = 0;
  uint32_t value = 0;
  at_ = start + 1;
  for (; num_digits < 3 && peek(num_digits) >= '0' && peek(num_digits) <= '7'; num_digits++)
    value = value * 8 + (peek(num_digits) - '0');
  bool is_octal = num_digits == 3 || (num_digits > 0 && (in_class || peek() == '0'));
  if (ecma()) is_octal = peek() == '0' && !is_digit(peek(1));
  if (!is_octal) return refuse(start, in_class ? "unknown escape" : "back-references are not supported"), Item{};
  if (value > 0377) return refuse(start, "an octal escape is above \\377"), Item{};
  at_ += num_digits;
  return {value};
}

// After \x, \u or \U.
std::optional<uint32_t> Parser::code_point(size_t start, uint32_t letter, bool in_class) {
  constexpr std::string_view SURROGATE = "a surrogate is not a character: write the character itself";
  std::optional<uint32_t> value;
  if (letter == 'u' && accept('{')) {
    size_t num_digits = 0;
    while (num_digits < 7 && peek(num_digits) != '}' && peek(num_digits) != END) num_digits++;
    value = num_digits == 0 || num_digits > 6 ? std::nullopt : hex(num_digits);
    if (!value || !accept('}')) return refuse(start, "\\u{...} needs one to six hexadecimal digits"), std::nullopt;
  } else if (letter == 'U' && ecma()) {
    return refuse(start, "unknown escape"), std::nullopt;
  } else {
    value = hex(letter == 'x' ? 2 : letter == 'u' ? 4 : 8);
    if (!value && letter == 'x') return refuse(start, "\\x needs two hexadecimal digits"), std::nullopt;
    if (!value && letter == 'u') return refuse(start, "\\u needs four hexadecimal digits"), std::nullopt;
    if (!value) return refuse(start, "\\U needs eight hexadecimal digits"), std::nullopt;
  }
  // A pair of surrogates is one character, as in JSON and JavaScript.
  size_t end = at_;
  if (letter == 'u' && *value >= 0xD800 && *value <= 0xDBFF && accept("\\u")) {
    std::optional<uint32_t> low = hex(4);
    if (low && *low >= 0xDC00 && *low <= 0xDFFF) return 0x10000 + (*value - 0xD800) * 0x400 + (*low - 0xDC00);
    at_ = end;
  }
  // In a class of ECMA-262 alone, a surrogate matches no character.
  if (*value >= 0xD800 && *value <= 0xDFFF && !(ecma() && in_class)) return refuse(start, SURROGATE), std::nullopt;
  if (*value > MAX_CODE_POINT) return refuse(start, "there is no code point above 10FFFF"), std::nullopt;
  return value;
}

std::optional<uint32_t> Parser::hex(size_t num_digits) {
  uint32_t value = 0;
  for (; num_digits > 0; num_digits--, at_++) {
    uint32_t c = peek(), letter = c | 0x20;
    bool is_hex_letter = c < 0x80 && letter >= 'a' && letter <= 'f';
    if (!is_digit(c) && !is_hex_letter) return std::nullopt;
    value = value * 16 + (is_digit(c) ? c - '0' : letter - 'a' + 10);
  }
  return value;
}

}  // namespace aici::regex
