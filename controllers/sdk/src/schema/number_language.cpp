#include <algorithm>
#include <numeric>

#include "aici/schema/numbers.hpp"

// Expressions for decimals without sign and exponent: the digits before the point, then perhaps a point and digits.
namespace aici::schema {
namespace {

using regex::ByteSet;
using regex::EMPTY;
using regex::ExprId;
using regex::Exprs;
using regex::NOTHING;
using regex::UNBOUNDED;
using Whole = Numbers::Whole;

class Language {
 public:
  // Numbers have at most `longest` digits before the point.
  Language(Exprs& exprs, bool with_fraction, uint32_t longest)
      : exprs_(exprs), with_fraction_(with_fraction), most_(longest == UNBOUNDED ? UNBOUNDED : longest - 1) {
    zeros_ = exprs_.repeat(digits('0', '0'), 0, UNBOUNDED);
    any_digits_ = exprs_.repeat(digits('0', '9'), 0, UNBOUNDED);
    fraction_ = with_fraction ? optional(join(point(), digits('0', '9'), any_digits_)) : EMPTY;
    zero_fraction_ = with_fraction ? optional(join(point(), digits('0', '0'), zeros_)) : EMPTY;
    whole_ = exprs_.alt({digits('0', '0'), join(digits('1', '9'), exprs_.repeat(digits('0', '9'), 0, most_))});
    all_ = join(whole_, fraction_);
  }

  ExprId all() const { return all_; }

  ExprId whole_numbers() { return join(whole_, zero_fraction_); }

  // Texts with exactly this magnitude.
  ExprId equal(const Decimal& n) {
    ExprId e = zeros_after(n);
    for (int32_t place = n.num_fraction_digits(); place-- > -n.num_integer_digits();) {
      if (place == -1 && n.num_fraction_digits()) e = join(point(), e);
      e = join(digit(n, place), e);
    }
    return e;
  }

  ExprId at_least(const Decimal& n, bool exclusive) {
    int32_t len = n.num_integer_digits();
    ExprId e;
    if (n.is_integer()) {
      e = !exclusive        ? fraction_
          : with_fraction_ ? join(point(), join(any_digits_, digits('1', '9'), any_digits_))
                           : NOTHING;
    } else {
      e = exclusive ? join(any_digits_, digits('1', '9'), any_digits_) : any_digits_;
      for (int32_t place = n.num_fraction_digits(); place-- > 0;)
        e = exprs_.alt({join(above(n, place), any_digits_), join(digit(n, place), e)});
      e = with_fraction_ ? join(point(), e) : NOTHING;
    }
    for (int32_t place = -1; place >= -len; place--)
      e = exprs_.alt({join(above(n, place), exprs_.repeat(digits('0', '9'), count(-place - 1), count(-place - 1)), fraction_),
                      join(digit(n, place), e)});
    ExprId longer = join(digits('1', '9'), exprs_.repeat(digits('0', '9'), count(len), most_), fraction_);
    return exprs_.alt({longer, e});
  }

  ExprId at_most(const Decimal& n, bool exclusive) {
    int32_t len = n.num_integer_digits();
    ExprId e;
    if (n.is_integer()) {
      e = exclusive ? NOTHING : zero_fraction_;
    } else {
      e = exclusive ? NOTHING : zeros_;
      for (int32_t place = n.num_fraction_digits(); place-- > 0;) {
        e = exprs_.alt({join(below(n, place, '0'), any_digits_), join(digit(n, place), e)});
        if (place > 0) e = optional(e);  // numbers with fewer digits than n are less than n, which does not end in zero
      }
      e = with_fraction_ ? optional(join(point(), e)) : EMPTY;
    }
    for (int32_t place = -1; place >= -len; place--) {
      char first = place == -len && len > 1 ? '1' : '0';
      e = exprs_.alt({join(below(n, place, first), exprs_.repeat(digits('0', '9'), count(-place - 1), count(-place - 1)), fraction_),
                      join(digit(n, place), e)});
    }
    if (len == 1) return e;
    ExprId shorter = exprs_.alt({digits('0', '0'), join(digits('1', '9'), exprs_.repeat(digits('0', '9'), 0, count(len - 2)))});
    return exprs_.alt({join(shorter, fraction_), e});
  }

  ExprId multiples(const Decimal& divisor) {
    int32_t scale = divisor.num_fraction_digits();
    uint64_t n = divisor.scaled(scale).value_or(1), power = 1;
    for (int32_t i = 0; i < scale; i++) power *= 10;
    if (!with_fraction_) return exprs_.both(whole_, exprs_.digits_multiple_of(n / std::gcd(n, power)));
    if (scale == 0) return join(exprs_.both(whole_, exprs_.digits_multiple_of(n)), zero_fraction_);
    return exprs_.both(all_, exprs_.digits_multiple_of(n, count(scale)));
  }

  ExprId without(ExprId from, ExprId what) { return exprs_.both(from, exprs_.complement(what)); }

 private:
  static uint32_t count(int32_t n) { return static_cast<uint32_t>(n); }

  ExprId digits(char first, char last) {
    if (first > last) return NOTHING;
    return exprs_.bytes(ByteSet::range(static_cast<uint8_t>(first), static_cast<uint8_t>(last)));
  }
  ExprId digit(const Decimal& n, int32_t place) { return digits(character(n, place), character(n, place)); }
  ExprId above(const Decimal& n, int32_t place) { return digits(static_cast<char>(character(n, place) + 1), '9'); }
  ExprId below(const Decimal& n, int32_t place, char first) { return digits(first, static_cast<char>(character(n, place) - 1)); }
  static char character(const Decimal& n, int32_t place) { return static_cast<char>('0' + n.digit_at(place)); }
  ExprId zeros_after(const Decimal& n) { return n.is_integer() ? zero_fraction_ : zeros_; }
  ExprId point() { return exprs_.bytes(ByteSet::range('.', '.')); }
  ExprId optional(ExprId e) { return exprs_.alt({EMPTY, e}); }
  ExprId join(ExprId x, ExprId y) { return exprs_.concat(x, y); }
  ExprId join(ExprId x, ExprId y, ExprId z) { return join(x, join(y, z)); }

  Exprs& exprs_;
  bool with_fraction_;
  uint32_t most_;
  ExprId zeros_, any_digits_, fraction_, zero_fraction_, whole_, all_;
};

ExprId minus(Exprs& exprs) { return exprs.bytes(ByteSet::range('-', '-')); }

ExprId written(std::string_view text, Exprs& exprs) {
  ExprId e = EMPTY;
  for (size_t i = text.size(); i-- > 0;) {
    auto byte = static_cast<uint8_t>(text[i]);
    e = exprs.concat(exprs.bytes(ByteSet::range(byte, byte)), e);
  }
  return e;
}

// As in the schema, and in plain notation.
ExprId listed(const std::vector<Numbers::Value>& values, Exprs& exprs) {
  std::vector<ExprId> ways;
  for (const Numbers::Value& value : values) {
    Text plain;
    value.number.write(plain);
    ways.push_back(written(plain, exprs));
    if (!value.written.empty()) ways.push_back(written(value.written, exprs));
  }
  return exprs.alt(ways);
}

// A double has up to 309 digits before the point. Numbers with an exponent stay below 10^308 too: at most 9 digits
// before the point, and an exponent of at most 299.
constexpr uint32_t LONGEST = 308, LONGEST_WITH_EXPONENT = 9;

// [eE](-[0-9]{1,3}|[+]?([0-9]{1,2}|[12][0-9]{2}))
ExprId exponent(Exprs& exprs) {
  ByteSet e, plus, minus;
  e.add('e'), e.add('E'), plus.add('+'), minus.add('-');
  auto digits = [&exprs](char first, char last, uint32_t min, uint32_t max) {
    return exprs.repeat(exprs.bytes(ByteSet::range(static_cast<uint8_t>(first), static_cast<uint8_t>(last))), min, max);
  };
  ExprId large = exprs.alt({digits('0', '9', 1, 2), exprs.concat(digits('1', '2', 1, 1), digits('0', '9', 2, 2))});
  ExprId small = exprs.concat(exprs.bytes(minus), digits('0', '9', 1, 3));
  return exprs.concat(exprs.bytes(e), exprs.alt({small, exprs.concat(exprs.repeat(exprs.bytes(plus), 0, 1), large)}));
}

}  // namespace

ExprId plain_numbers(Exprs& exprs) {
  Language texts(exprs, false, UNBOUNDED);
  auto digits = [&exprs](char first, char last, uint32_t min, uint32_t max) {
    return exprs.repeat(exprs.bytes(ByteSet::range(static_cast<uint8_t>(first), static_cast<uint8_t>(last))), min, max);
  };
  ExprId fraction = exprs.concat(digits('.', '.', 1, 1), exprs.concat(digits('0', '9', 0, UNBOUNDED), digits('1', '9', 1, 1)));
  ExprId positive = exprs.concat(digits('1', '9', 1, 1), digits('0', '9', 0, UNBOUNDED));
  ExprId with_sign = exprs.alt({positive, exprs.concat(texts.all(), fraction)});
  return exprs.alt({digits('0', '0', 1, 1), exprs.concat(exprs.repeat(minus(exprs), 0, 1), with_sign)});
}

ExprId language(const Numbers& n, Exprs& exprs) {
  if (n.values) return listed(*n.values, exprs);
  auto is_large = [](const std::optional<Bound>& bound) { return bound && bound->value.num_integer_digits() >= static_cast<int32_t>(LONGEST); };
  Language texts(exprs, n.whole != Whole::Only, is_large(n.min) || is_large(n.max) ? UNBOUNDED : LONGEST);
  bool is_plain = n.multiples.empty() && n.not_multiples.empty() && n.whole != Whole::Never;
  if (is_plain && n.excluded.empty() && !n.min && !n.max) {
    ExprId magnitude = texts.all();
    if (n.whole != Whole::Only)
      magnitude = exprs.alt({magnitude, exprs.concat(Language(exprs, true, LONGEST_WITH_EXPONENT).all(), exponent(exprs))});
    return exprs.concat(exprs.repeat(minus(exprs), 0, 1), magnitude);
  }
  // Conditions on both sides of zero.
  ExprId common = texts.all();
  for (const Decimal& divisor : n.multiples) common = exprs.both(common, texts.multiples(divisor));
  for (const Decimal& divisor : n.not_multiples) common = texts.without(common, texts.multiples(divisor));
  if (n.whole == Whole::Never) common = texts.without(common, texts.whole_numbers());

  // The magnitudes between two bounds, either of which may be missing.
  auto between = [&](const std::optional<Bound>& low, const std::optional<Bound>& high, bool negative) {
    if (high && high->value.negative) return NOTHING;
    if (high && high->value.is_zero() && high->exclusive) return NOTHING;
    std::vector<ExprId> all;
    if (low && !low->value.negative && (low->exclusive || !low->value.is_zero())) all.push_back(texts.at_least(low->value, low->exclusive));
    if (high) all.push_back(texts.at_most(high->value, high->exclusive));
    if (!is_plain || all.empty()) all.push_back(common);
    ExprId e = all.size() > 1 ? exprs.both(all) : all[0];
    for (const Decimal& number : n.excluded)
      if (number.negative == negative || number.is_zero()) e = texts.without(e, texts.equal(negative ? number.negated() : number));
    return e;
  };
  auto mirrored = [](const std::optional<Bound>& bound) -> std::optional<Bound> {
    if (!bound) return std::nullopt;
    return Bound{bound->value.negated(), bound->exclusive};
  };
  ExprId above = between(n.min, n.max, false);
  bool below_zero = !n.min || n.min->value.negative;
  ExprId below = below_zero ? between(mirrored(n.max), mirrored(n.min), true) : NOTHING;
  return exprs.alt({above, exprs.concat(minus(exprs), below)});
}

}  // namespace aici::schema
