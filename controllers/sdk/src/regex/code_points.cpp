#include "aici/regex/code_points.hpp"

#include <algorithm>

namespace aici::regex {
namespace {

// Where the number of bytes of an encoding changes, and the gap of the surrogates.
constexpr CodePointRange SAME_LENGTH[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, MAX_CODE_POINT}};

uint32_t num_bytes(uint32_t code_point) { return code_point < 0x80 ? 1 : code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4; }

uint8_t encoded_byte(uint32_t code_point, uint32_t at, uint32_t len) {
  static constexpr uint8_t LEAD[] = {0, 0, 0xC0, 0xE0, 0xF0};
  uint32_t bits = code_point >> (6 * (len - 1 - at));
  return static_cast<uint8_t>(at == 0 ? LEAD[len] | bits : 0x80 | (bits & 0x3F));
}

// Splits a range of encodings of one length until each part is a product of byte ranges.
void add_products(Exprs& exprs, uint32_t first, uint32_t last, std::vector<ExprId>& ways) {
  uint32_t len = num_bytes(first);
  for (uint32_t trailing = 1; trailing < len; trailing++) {
    uint32_t low_bits = (1u << (6 * trailing)) - 1;
    if ((first & ~low_bits) == (last & ~low_bits)) continue;
    if (first & low_bits) {
      add_products(exprs, first, first | low_bits, ways);
      return add_products(exprs, (first | low_bits) + 1, last, ways);
    }
    if ((last & low_bits) != low_bits) {
      add_products(exprs, first, (last & ~low_bits) - 1, ways);
      return add_products(exprs, last & ~low_bits, last, ways);
    }
  }
  ExprId product = EMPTY;
  for (uint32_t at = len; at-- > 0;)
    product = exprs.concat(exprs.bytes(ByteSet::range(encoded_byte(first, at, len), encoded_byte(last, at, len))), product);
  ways.push_back(product);
}

}  // namespace

CodePoints CodePoints::negated() const {
  std::vector<CodePointRange> sorted(ranges_);
  std::sort(sorted.begin(), sorted.end(), [](CodePointRange x, CodePointRange y) { return x.first < y.first; });
  CodePoints gaps;
  uint32_t next = 0;
  for (CodePointRange range : sorted) {
    if (range.first > next) gaps.add(next, range.first - 1);
    next = std::max(next, range.last + 1);
  }
  if (next <= MAX_CODE_POINT) gaps.add(next, MAX_CODE_POINT);
  return gaps;
}

CodePoints CodePoints::either_case() const {
  CodePoints both = *this;
  for (CodePointRange range : ranges_) {
    uint32_t upper_first = std::max<uint32_t>(range.first, 'A'), upper_last = std::min<uint32_t>(range.last, 'Z');
    uint32_t lower_first = std::max<uint32_t>(range.first, 'a'), lower_last = std::min<uint32_t>(range.last, 'z');
    if (upper_first <= upper_last) both.add(upper_first + 32, upper_last + 32);
    if (lower_first <= lower_last) both.add(lower_first - 32, lower_last - 32);
  }
  return both;
}

ExprId CodePoints::to_expr(Exprs& exprs) const {
  std::vector<ExprId> ways;
  for (CodePointRange range : ranges_)
    for (CodePointRange same : SAME_LENGTH) {
      uint32_t first = std::max(range.first, same.first), last = std::min(range.last, same.last);
      if (first <= last) add_products(exprs, first, last, ways);
    }
  return exprs.alt(ways);
}

}  // namespace aici::regex
