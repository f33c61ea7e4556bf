#include "aici/schema/decimal.hpp"

#include <algorithm>

namespace aici::schema {
namespace {

void normalize(Decimal& n) {
  size_t leading = 0;
  while (leading < n.digits.size() && n.digits[leading] == 0) leading++;
  n.digits.erase(n.digits.begin(), n.digits.begin() + static_cast<ptrdiff_t>(leading));
  n.point -= static_cast<int32_t>(leading);
  while (!n.digits.empty() && n.digits.back() == 0) n.digits.pop_back();
  if (n.digits.empty()) n.point = 0, n.negative = false;
}

int compare_magnitudes(const Decimal& x, const Decimal& y) {
  if (x.is_zero() || y.is_zero()) return static_cast<int>(!x.is_zero()) - static_cast<int>(!y.is_zero());
  if (x.point != y.point) return x.point < y.point ? -1 : 1;
  if (std::ranges::equal(x.digits, y.digits)) return 0;
  return std::ranges::lexicographical_compare(x.digits, y.digits) ? -1 : 1;
}

// Cut off after the point, and add one if `away` from zero.
Decimal whole(const Decimal& n, bool away) {
  if (n.is_integer()) return n;
  Decimal cut = n;
  cut.digits.resize(static_cast<size_t>(std::max(n.point, 0)));
  cut.point = std::max(n.point, 0);
  if (away) {
    size_t i = cut.digits.size();
    while (i > 0 && cut.digits[i - 1] == 9) cut.digits[--i] = 0;
    if (i > 0) {
      cut.digits[i - 1]++;
    } else {
      cut.digits.insert(cut.digits.begin(), 1), cut.point++;
    }
  }
  normalize(cut);
  return cut;
}

}  // namespace

std::optional<Decimal> Decimal::from_json(std::string_view text) {
  Decimal n;
  size_t at = 0;
  if (text[at] == '-') n.negative = true, at++;
  bool in_fraction = false;
  for (; at < text.size() && (text[at] | 0x20) != 'e'; at++) {
    if (text[at] == '.') {
      in_fraction = true;
    } else {
      n.digits.push_back(static_cast<uint8_t>(text[at] - '0'));
      n.point += !in_fraction;
    }
  }
  int32_t exponent = 0;
  bool minus = false;
  for (at++; at < text.size(); at++) {
    if (text[at] == '-' || text[at] == '+') {
      minus = text[at] == '-';
    } else {
      exponent = std::min(exponent * 10 + (text[at] - '0'), 100000);
    }
  }
  n.point += minus ? -exponent : exponent;
  normalize(n);
  if (n.point > MAX_PLACES || n.num_fraction_digits() > MAX_PLACES) return std::nullopt;
  return n;
}

Decimal Decimal::negated() const {
  Decimal n = *this;
  n.negative = !negative && !is_zero();
  return n;
}

Decimal Decimal::plus_one() const {
  Decimal n = *this;
  n.digits.resize(static_cast<size_t>(std::max(point, 1)));
  n.point = std::max(point, 1);
  size_t i = n.digits.size() - 1;
  if (negative) {  // the magnitude is at least 1
    while (n.digits[i] == 0) n.digits[i--] = 9;
    n.digits[i]--;
  } else {
    while (n.digits[i] == 9 && i > 0) n.digits[i--] = 0;
    if (n.digits[i] == 9) {
      n.digits[0] = 0;
      n.digits.insert(n.digits.begin(), 1), n.point++;
    } else {
      n.digits[i]++;
    }
  }
  normalize(n);
  return n;
}

Decimal Decimal::floor() const { return whole(*this, negative); }
Decimal Decimal::ceil() const { return whole(*this, !negative); }

uint8_t Decimal::digit_at(int32_t place) const {
  int32_t at = point + place;
  return at >= 0 && at < static_cast<int32_t>(digits.size()) ? digits[static_cast<size_t>(at)] : 0;
}

std::optional<uint64_t> Decimal::scaled(int32_t scale) const {
  uint64_t value = 0;
  for (int32_t place = -std::max(point, 1); place < scale; place++) {
    uint64_t digit = digit_at(place);
    if (value > (INT64_MAX - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

bool Decimal::is_multiple_of(const Decimal& divisor) const {
  int32_t scale = divisor.num_fraction_digits();
  if (num_fraction_digits() > scale) return false;
  std::optional<uint64_t> by = divisor.scaled(scale);
  if (!by) return false;
  uint64_t rest = 0;
  for (int32_t place = -std::max(point, 1); place < scale; place++)
    rest = static_cast<uint64_t>((static_cast<unsigned __int128>(rest) * 10 + digit_at(place)) % *by);
  return rest == 0;
}

void Decimal::write(Text& out) const {
  if (negative) out << '-';
  for (int32_t place = -num_integer_digits(); place < num_fraction_digits(); place++) {
    if (place == 0) out << '.';
    out << static_cast<char>('0' + digit_at(place));
  }
}

int compare(const Decimal& x, const Decimal& y) {
  if (x.negative != y.negative) return x.negative ? -1 : 1;
  return x.negative ? compare_magnitudes(y, x) : compare_magnitudes(x, y);
}

}  // namespace aici::schema
