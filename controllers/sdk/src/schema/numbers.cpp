#include "aici/schema/numbers.hpp"

namespace aici::schema {
namespace {

using Whole = Numbers::Whole;

const Bound* tighter(const std::optional<Bound>& x, const std::optional<Bound>& y, int sign) {
  if (!x || !y) return x ? &*x : y ? &*y : nullptr;
  int order = compare(x->value, y->value) * sign;
  return order > 0 || (order == 0 && x->exclusive) ? &*x : &*y;
}

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Bounds of integers become inclusive integers; returns false if no number is between the bounds.
bool tighten(Numbers& n) {
  if (n.whole == Whole::Only) {
    if (n.min) {
      Decimal up = n.min->value.ceil();
      n.min = Bound{n.min->exclusive && up == n.min->value ? up.plus_one() : up};
    }
    if (n.max) {
      Decimal down = n.max->value.floor();
      n.max = Bound{n.max->exclusive && down == n.max->value ? down.negated().plus_one().negated() : down};
    }
  }
  if (!n.min || !n.max) return true;
  int order = compare(n.min->value, n.max->value);
  return order < 0 || (order == 0 && !n.min->exclusive && !n.max->exclusive && n.has(n.min->value));
}

}  // namespace

bool Numbers::has(const Decimal& n) const {
  if (whole != Whole::Either && (whole == Whole::Only) != n.is_integer()) return false;
  if (min && compare(n, min->value) < (min->exclusive ? 1 : 0)) return false;
  if (max && compare(n, max->value) > (max->exclusive ? -1 : 0)) return false;
  for (const Decimal& divisor : multiples)
    if (!n.is_multiple_of(divisor)) return false;
  for (const Decimal& divisor : not_multiples)
    if (n.is_multiple_of(divisor)) return false;
  for (const Decimal& other : excluded)
    if (n == other) return false;
  return true;
}

bool intersect(const Numbers& x, const Numbers& y, Numbers& both) {
  both = x;
  if (x.whole == Whole::Either) {
    both.whole = y.whole;
  } else if (y.whole != Whole::Either && y.whole != x.whole) {
    return false;
  }
  if (const Bound* min = tighter(x.min, y.min, 1)) both.min = Bound(*min);
  if (const Bound* max = tighter(x.max, y.max, -1)) both.max = Bound(*max);
  append(both.multiples, y.multiples);
  append(both.not_multiples, y.not_multiples);
  append(both.excluded, y.excluded);
  if (x.values && y.values) {
    both.values->clear();
    for (const Numbers::Value& a : *x.values)
      for (const Numbers::Value& b : *y.values)
        if (a.number == b.number) both.values->push_back(a);
  } else if (y.values) {
    both.values = y.values;
  }
  if (both.values) {
    std::erase_if(*both.values, [&both](const Numbers::Value& value) { return !both.has(value.number); });
    both = Numbers{.values = static_cast<std::optional<std::vector<Numbers::Value>>&&>(both.values)};
    return !both.values->empty();
  }
  return tighten(both);
}

std::vector<Numbers> complement(const Numbers& n) {
  std::vector<Numbers> outside;
  if (n.values) {
    Numbers& others = outside.emplace_back();
    for (const Numbers::Value& value : *n.values)
      if (n.has(value.number)) others.excluded.push_back(value.number);
    return outside;
  }
  if (n.whole != Whole::Either) outside.emplace_back().whole = n.whole == Whole::Only ? Whole::Never : Whole::Only;
  if (n.min) outside.emplace_back().max = Bound{n.min->value, !n.min->exclusive};
  if (n.max) outside.emplace_back().min = Bound{n.max->value, !n.max->exclusive};
  for (const Decimal& divisor : n.multiples) outside.emplace_back().not_multiples.push_back(divisor);
  for (const Decimal& divisor : n.not_multiples) outside.emplace_back().multiples.push_back(divisor);
  for (const Decimal& number : n.excluded) {
    Numbers& one = outside.emplace_back();
    one.values.emplace().push_back({number, {}});
  }
  return outside;
}

}  // namespace aici::schema
