// The texts of one code point of a set. Every way to write a code point is a number with digits of a few bits: bytes of
// UTF-8, or hexadecimal digits. A range of numbers becomes a few products of ranges of digits.
#include <algorithm>
#include <string_view>

#include "aici/regex/code_points.hpp"

namespace aici::regex {
namespace {

struct Digit {
  uint8_t bits;
  uint8_t base;  // added to the digit
  bool hex;      // written as a hexadecimal digit in either case, else as a byte
  std::string_view before;
};

// The code points written in these digits, most significant first, after subtracting `offset`.
struct Form {
  uint32_t first, last;
  std::span<const Digit> digits;
  uint32_t offset = 0;
};

constexpr Digit ONE[] = {{7, 0, false, ""}};
constexpr Digit TWO[] = {{5, 0xC0, false, ""}, {6, 0x80, false, ""}};
constexpr Digit THREE[] = {{4, 0xE0, false, ""}, {6, 0x80, false, ""}, {6, 0x80, false, ""}};
constexpr Digit FOUR[] = {{3, 0xF0, false, ""}, {6, 0x80, false, ""}, {6, 0x80, false, ""}, {6, 0x80, false, ""}};
constexpr Digit ESCAPE[] = {{4, 0, true, "\\u"}, {4, 0, true, ""}, {4, 0, true, ""}, {4, 0, true, ""}};
constexpr Digit ESCAPED_PAIR[] = {{2, 8, true, "\\uD"},  {4, 0, true, ""}, {4, 0, true, ""},
                                  {2, 12, true, "\\uD"}, {4, 0, true, ""}, {4, 0, true, ""}};

// Surrogates cannot be written.
constexpr Form UTF8_FORMS[] = {
    {0, 0x7F, ONE}, {0x80, 0x7FF, TWO}, {0x800, 0xD7FF, THREE}, {0xE000, 0xFFFF, THREE}, {0x10000, MAX_CODE_POINT, FOUR},
};
constexpr Form JSON_FORMS[] = {
    {0x20, '"' - 1, ONE},      {'"' + 1, '\\' - 1, ONE},  {'\\' + 1, 0x7F, ONE},
    {0x80, 0x7FF, TWO},        {0x800, 0xD7FF, THREE},    {0xE000, 0xFFFF, THREE},
    {0x10000, MAX_CODE_POINT, FOUR},
    {0, 0xD7FF, ESCAPE},       {0xE000, 0xFFFF, ESCAPE},  {0x10000, MAX_CODE_POINT, ESCAPED_PAIR, 0x10000},
};

struct ShortEscape {
  uint8_t code_point, letter;
};
constexpr ShortEscape SHORT_ESCAPES[] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'\b', 'b'},
                                         {'\f', 'f'}, {'\n', 'n'},  {'\r', 'r'}, {'\t', 't'}};

void add_hex_digit(ByteSet& set, uint32_t value) {
  if (value < 10) return set.add(static_cast<uint8_t>('0' + value));
  set.add(static_cast<uint8_t>('a' + value - 10));
  set.add(static_cast<uint8_t>('A' + value - 10));
}

ExprId digit_expr(Exprs& exprs, const Digit& digit, uint32_t first, uint32_t last) {
  ByteSet set;
  for (uint32_t value = first + digit.base; value <= last + digit.base; value++)
    digit.hex ? add_hex_digit(set, value) : set.add(static_cast<uint8_t>(value));
  ExprId expr = exprs.bytes(set);
  for (size_t i = digit.before.size(); i-- > 0;) {
    ByteSet fixed;
    digit.before[i] == 'D' ? add_hex_digit(fixed, 0xD) : fixed.add(static_cast<uint8_t>(digit.before[i]));
    expr = exprs.concat(exprs.bytes(fixed), expr);
  }
  return expr;
}

// Split a range of numbers until each part is a product of ranges of digits.
void add_products(Exprs& exprs, std::span<const Digit> digits, uint32_t first, uint32_t last, std::vector<ExprId>& ways) {
  uint32_t shift = 0;
  for (size_t at = digits.size(); at-- > 1;) {
    shift += digits[at].bits;
    uint32_t low_bits = (1u << shift) - 1;
    if ((first & ~low_bits) == (last & ~low_bits)) continue;
    if (first & low_bits) {
      add_products(exprs, digits, first, first | low_bits, ways);
      return add_products(exprs, digits, (first | low_bits) + 1, last, ways);
    }
    if ((last & low_bits) != low_bits) {
      add_products(exprs, digits, first, (last & ~low_bits) - 1, ways);
      return add_products(exprs, digits, last & ~low_bits, last, ways);
    }
  }
  ExprId product = EMPTY;
  shift = 0;
  for (size_t at = digits.size(); at-- > 0; shift += digits[at].bits) {
    uint32_t mask = (1u << digits[at].bits) - 1;
    product = exprs.concat(digit_expr(exprs, digits[at], first >> shift & mask, last >> shift & mask), product);
  }
  ways.push_back(product);
}

}  // namespace

ExprId CodePoints::to_expr(Exprs& exprs, Encoding encoding) const {
  std::vector<ExprId> ways;
  CodePoints set = sorted();
  std::span<const Form> forms = UTF8_FORMS;
  if (encoding == Encoding::JsonString) forms = JSON_FORMS;
  for (const Form& form : forms)
    for (CodePointRange range : set.ranges_) {
      uint32_t first = std::max(range.first, form.first), last = std::min(range.last, form.last);
      if (first <= last) add_products(exprs, form.digits, first - form.offset, last - form.offset, ways);
    }
  if (encoding == Encoding::JsonString) {
    ByteSet backslash = ByteSet::range('\\', '\\'), letters;
    for (ShortEscape escape : SHORT_ESCAPES)
      if (set.has(escape.code_point)) letters.add(escape.letter);
    ways.push_back(exprs.concat(exprs.bytes(backslash), exprs.bytes(letters)));
  }
  return exprs.alt(ways);
}

}  // namespace aici::regex
