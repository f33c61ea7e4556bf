// Exact decimal numbers, as JSON writes them: comparisons and remainders without rounding.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "aici/text.hpp"

namespace aici::schema {

// (-1)^negative * 0.d1d2d3... * 10^point. No leading and no trailing zero digits, so equal numbers have equal members;
// zero has no digits, point 0 and no sign.
struct Decimal {
  // Limit of the places before and after the decimal point of numbers in constraints.
  static constexpr int32_t MAX_PLACES = 400;

  bool negative = false;
  std::vector<uint8_t> digits{};
  int32_t point = 0;

  // From the text of a JSON number; nullopt if there are more than MAX_PLACES places before or after the point.
  static std::optional<Decimal> from_json(std::string_view text);

  bool operator==(const Decimal&) const = default;
  bool is_zero() const { return digits.empty(); }
  bool is_integer() const { return static_cast<int32_t>(digits.size()) <= point; }
  Decimal negated() const;
  // The nearest integer towards negative (positive) infinity, or the number itself.
  Decimal floor() const;
  Decimal ceil() const;
  Decimal plus_one() const;  // of an integer
  uint8_t digit_at(int32_t place) const;  // of the magnitude; place 0: first after the point, -1: last before
  int32_t num_fraction_digits() const { return is_integer() ? 0 : static_cast<int32_t>(digits.size()) - point; }
  int32_t num_integer_digits() const { return point > 1 ? point : 1; }  // as written: 0.5 has one
  // The magnitude times 10^scale, which must make an integer; nullopt if the result does not fit into 63 bits.
  std::optional<uint64_t> scaled(int32_t scale) const;
  bool is_multiple_of(const Decimal& divisor) const;  // divisor: positive
  // Without an exponent: 0, -12, 0.5.
  void write(Text& out) const;
};

// Negative, zero or positive.
int compare(const Decimal& x, const Decimal& y);

}  // namespace aici::schema
