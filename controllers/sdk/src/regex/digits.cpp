// Decimal numbers that are multiples of n / 10^places: the remainder is the whole state, however large the number.
#include <numeric>
#include <string_view>

#include "aici/regex/expr.hpp"

namespace aici::regex {
namespace {

uint64_t power_of_ten(uint32_t exponent) {
  uint64_t power = 1;
  while (exponent-- > 0) power *= 10;
  return power;
}

uint64_t shifted(uint64_t remainder, uint64_t by, uint64_t n) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(remainder) * by % n);
}

}  // namespace

uint32_t Exprs::Digits::hash() const {
  uint64_t mixed = (n * 0x9E3779B97F4A7C15u + remainder) * 0xD6E8FEB86659FD93u + (places << 2 | in_fraction << 1 | begun);
  return static_cast<uint32_t>(mixed ^ mixed >> 32);
}

bool Exprs::Digits::matches() const { return begun && shifted(remainder, power_of_ten(places), n) == 0; }

// Before the point always: further digits can make any remainder zero.
bool Exprs::Digits::can_match() const {
  if (!in_fraction) return true;
  uint64_t power = power_of_ten(places), rest = shifted(remainder, power, n);
  return rest == 0 || n - rest < power;
}

std::optional<Exprs::Digits> Exprs::Digits::after(uint8_t byte) const {
  Digits next = *this;
  if (byte == '.' && places > 0 && begun && !in_fraction) {
    next.in_fraction = true, next.begun = false;
  } else if (byte < '0' || byte > '9' || (in_fraction && places == 0 && byte != '0')) {
    return std::nullopt;
  } else {
    // The digits before the point count with a factor of 10^places.
    uint64_t modulus = in_fraction ? n : n / std::gcd(n, power_of_ten(places));
    next.begun = true;
    if (!in_fraction || places > 0) next.remainder = (shifted(remainder, 10, modulus) + (byte - '0')) % modulus;
    if (in_fraction && places > 0) next.places--;
  }
  return next.can_match() ? std::optional(next) : std::nullopt;
}

ExprId Exprs::digits_multiple_of(uint64_t n, uint32_t places) {
  if (n == 0 || n > MAX_DIVISOR) return fail("a divisor is not between 1 and 10^18"), NOTHING;
  if (n == 1 && places == 0) return repeat(bytes(ByteSet::range('0', '9')), 1, UNBOUNDED);
  return add_digits({n, 0, places, false, false});
}

// An expression of digits is made only if further digits can match, so none is empty.
ExprId Exprs::add_digits(const Digits& digits) {
  uint32_t number = digits_table_.find_or_add(
      digits.hash(), [&](uint32_t id) { return digits_[id] == digits; },
      [&] {
        digits_.push_back(digits);
        return static_cast<uint32_t>(digits_.size() - 1);
      });
  return add({Kind::Digits, digits.matches(), false, number, 0, 0});
}

ExprId Exprs::derive_digits(const Node& node, uint8_t byte) {
  constexpr std::string_view BYTES = ".0123456789";
  Digits digits = digits_[node.a];
  std::optional<Digits> next = digits.after(byte);
  ByteSet same = next ? ByteSet() : ByteSet::all();
  for (char c : BYTES) {
    auto other = static_cast<uint8_t>(c);
    bool alike = digits.after(other) == next;
    if (alike && next) same.add(other);
    if (!alike && !next) same = same & ~ByteSet::of(other);
  }
  alike_ = alike_ & same;
  return next ? add_digits(*next) : NOTHING;
}

}  // namespace aici::regex
