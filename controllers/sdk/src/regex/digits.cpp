// Decimal numbers that are multiples of n: the remainder is the whole state, however large the number.
#include "aici/regex/expr.hpp"

namespace aici::regex {

uint32_t Exprs::Digits::hash() const {
  uint64_t mixed = (n * 0x9E3779B97F4A7C15u + remainder) * 0xD6E8FEB86659FD93u + begun;
  return static_cast<uint32_t>(mixed ^ mixed >> 32);
}

ExprId Exprs::digits_multiple_of(uint64_t n) {
  if (n == 0 || n > MAX_DIVISOR) return fail("a divisor is not between 1 and 10^18"), NOTHING;
  if (n == 1) return repeat(bytes(ByteSet::range('0', '9')), 1, UNBOUNDED);
  return add_digits({n, 0, false});
}

// Whatever the remainder, further digits can make the remainder zero: no such expression is empty.
ExprId Exprs::add_digits(const Digits& digits) {
  uint32_t number = digits_table_.find_or_add(
      digits.hash(), [&](uint32_t id) { return digits_[id] == digits; },
      [&] {
        digits_.push_back(digits);
        return static_cast<uint32_t>(digits_.size() - 1);
      });
  return add({Kind::Digits, digits.begun && digits.remainder == 0, false, number, 0, 0});
}

ExprId Exprs::derive_digits(const Node& node, uint8_t byte) {
  Digits digits = digits_[node.a];
  auto after = [&](uint8_t digit) { return (digits.remainder * 10 + (digit - '0')) % digits.n; };
  ByteSet same;
  if (byte < '0' || byte > '9') {
    alike_ = alike_ & ~ByteSet::range('0', '9');
    return NOTHING;
  }
  uint64_t remainder = after(byte);
  for (uint8_t digit = '0'; digit <= '9'; digit++)
    if (after(digit) == remainder) same.add(digit);
  alike_ = alike_ & same;
  return add_digits({digits.n, remainder, true});
}

}  // namespace aici::regex
