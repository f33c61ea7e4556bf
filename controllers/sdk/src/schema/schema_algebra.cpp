#include <algorithm>

#include "aici/schema/evaluator.hpp"

// Intersection and complement of shapes, and a test for shapes known to be empty.
namespace aici::schema {
namespace {

// Depth of the search for a reason why two alternatives are disjoint.
constexpr int DISJOINT_DEPTH = 5;

}  // namespace

Shapes Evaluator::intersect(const Shapes& x, const Shapes& y) {
  Shapes both{.null = x.null && y.null, .no = x.no && y.no, .yes = x.yes && y.yes};
  size_t work = x.numbers.size() * y.numbers.size() + x.strings.size() * y.strings.size() + x.arrays.size() * y.arrays.size();
  for (const Object& a : x.objects)
    for (const Object& b : y.objects) work += 1 + a.properties.size() + b.properties.size();
  if (!spend(static_cast<uint32_t>(work))) return {};
  // A limit for memory: products grow fast.
  size_t size = 0;
  auto add = [&](auto& to, auto&& from, size_t num_properties) {
    if ((size += 8 + num_properties) <= MAX_ALTERNATIVES) to.push_back(static_cast<std::remove_reference_t<decltype(from)>&&>(from));
  };
  for (const Numbers& a : x.numbers)
    for (const Numbers& b : y.numbers)
      if (Numbers n; schema::intersect(a, b, n)) add(both.numbers, n, 0);
  for (const Strings& a : x.strings)
    for (const Strings& b : y.strings)
      if (Strings s; schema::intersect(a, b, strings_, s)) add(both.strings, s, 0);
  for (const Array& a : x.arrays)
    for (const Array& b : y.arrays)
      if (Array array; intersect(a, b, array)) add(both.arrays, array, array.prefix.size());
  for (const Object& a : x.objects)
    for (const Object& b : y.objects) {
      std::vector<Object> expanded;
      if (Object object; size <= MAX_ALTERNATIVES && intersect(a, b, object)) expand_some(static_cast<Object&&>(object), expanded);
      for (Object& object : expanded) add(both.objects, object, object.properties.size());
    }
  if (size > MAX_ALTERNATIVES) {
    refuse(*current_, "", "combining its parts gives too many alternatives");
    return {};
  }
  return both;
}

Shapes Evaluator::complement(const Shapes& shapes) {
  Shapes outside{.null = !shapes.null, .no = !shapes.no, .yes = !shapes.yes};
  Shapes all = anything();
  outside.numbers = all.numbers, outside.strings = all.strings, outside.arrays = all.arrays, outside.objects = all.objects;
  // The complement of each alternative is a union; the result is the intersection of these unions.
  auto meet_all = [this](Shapes& with, auto member, const auto& alternatives, auto complement_of) {
    for (const auto& alternative : alternatives) {
      Shapes step;
      step.*member = complement_of(alternative);
      with = intersect(with, step);
    }
  };
  auto only = [](auto member, auto& from) {
    Shapes part;
    part.*member = static_cast<std::remove_reference_t<decltype(from)>&&>(from);
    return part;
  };
  Shapes numbers = only(&Shapes::numbers, outside.numbers), strings = only(&Shapes::strings, outside.strings);
  Shapes arrays = only(&Shapes::arrays, outside.arrays), objects = only(&Shapes::objects, outside.objects);
  meet_all(numbers, &Shapes::numbers, shapes.numbers, [](const Numbers& n) { return schema::complement(n); });
  meet_all(strings, &Shapes::strings, shapes.strings, [this](const Strings& s) { return schema::complement(s, strings_); });
  meet_all(arrays, &Shapes::arrays, shapes.arrays, [this](const Array& a) { return complement(a); });
  meet_all(objects, &Shapes::objects, shapes.objects, [this](const Object& o) { return complement(o); });
  outside.numbers = static_cast<std::vector<Numbers>&&>(numbers.numbers);
  outside.strings = static_cast<std::vector<Strings>&&>(strings.strings);
  outside.arrays = static_cast<std::vector<Array>&&>(arrays.arrays);
  outside.objects = static_cast<std::vector<Object>&&>(objects.objects);
  return outside;
}

bool Evaluator::intersect(const Array& x, const Array& y, Array& both) {
  size_t len = std::max(x.prefix.size(), y.prefix.size());
  both.prefix.clear();
  both.min = std::max(x.min, y.min), both.max = std::min(x.max, y.max);
  for (size_t i = 0; i < len; i++) both.prefix.push_back(meet(x.item(i), y.item(i)));
  both.rest = meet(x.rest, y.rest);
  for (size_t i = 0; i <= len; i++)
    if (both.item(i) == NEVER) both.max = std::min(both.max, static_cast<uint32_t>(i));
  both.contains = x.contains;
  both.contains.insert(both.contains.end(), y.contains.begin(), y.contains.end());
  for (const Contains& c : both.contains) {
    if (c.min > c.max || (c.item == NEVER && c.min > 0)) return false;
    if (c.min > 0) both.min = std::max(both.min, c.min > UINT32_MAX - c.from ? UINT32_MAX : c.from + c.min);
  }
  both.unique = x.unique ? x.unique : y.unique;
  both.repeats = x.repeats ? x.repeats : y.repeats;
  if (both.unique && both.repeats) return false;
  both.evaluated = joined(x.evaluated, y.evaluated);
  return both.min <= both.max;
}

std::vector<Array> Evaluator::complement(const Array& array) {
  std::vector<Array> outside;
  if (array.min > 0) outside.emplace_back().max = array.min - 1;
  if (array.max != regex::UNBOUNDED) outside.emplace_back().min = array.max + 1;
  for (size_t i = 0; i < array.prefix.size(); i++) {
    if (array.prefix[i] == ANYTHING) continue;
    for (ConjId other : this->outside(array.prefix[i])) {
      Array& wrong = outside.emplace_back();
      wrong.prefix.assign(i, ANYTHING);
      wrong.prefix.push_back(other);
      wrong.min = static_cast<uint32_t>(i + 1);
    }
  }
  auto from = static_cast<uint32_t>(array.prefix.size());
  if (array.rest != ANYTHING && array.max > from)
    for (ConjId other : this->outside(array.rest)) {
      Array& wrong = outside.emplace_back();
      wrong.contains.push_back({other, from, 1, regex::UNBOUNDED});
      wrong.min = from + 1;
    }
  for (const Contains& c : array.contains) {
    if (c.min > 0) outside.emplace_back().contains.push_back({quiet(c.item), c.from, 0, c.min - 1});
    if (c.max == regex::UNBOUNDED) continue;
    Array& many = outside.emplace_back();
    many.contains.push_back({quiet(c.item), c.from, c.max + 1, regex::UNBOUNDED});
    many.min = c.from + c.max + 1;
  }
  if (array.unique) {
    Array& again = outside.emplace_back();
    again.repeats = array.unique, again.min = 2;
  }
  if (array.repeats) outside.emplace_back().unique = array.repeats;
  return outside;
}

bool Evaluator::disjoint(const Shapes& x, const Shapes& y) { return is_empty(intersect(x, y), DISJOINT_DEPTH); }

bool Evaluator::is_empty(ConjId conj, int depth) {
  if (conj == ANYTHING || conj == NEVER) return conj == NEVER;
  if (under_way_[conj] || depth_ >= MAX_DEPTH / 2) return false;
  bool looking = looking_, gave_up = gave_up_;
  looking_ = true, gave_up_ = false;
  const Shapes& inside = shapes(conj);
  bool empty = !gave_up_ && is_empty(inside, depth);
  looking_ = looking, gave_up_ = gave_up;
  return empty;
}

// True only if certain.
bool Evaluator::is_empty(const Shapes& shapes, int depth) {
  if (shapes.null || shapes.no || shapes.yes || depth == 0 || !spend(1)) return false;
  auto no_number = [this](const Numbers& n) { return language(n, exprs_) == regex::NOTHING; };
  auto no_string = [this](const Strings& s) { return !s.values && strings_.content(s) == regex::NOTHING; };
  auto no_array = [&](const Array& array) {
    for (uint32_t i = 0; i < array.min && i <= array.prefix.size(); i++)
      if (is_empty(array.item(i), depth - 1)) return true;
    return false;
  };
  auto no_object = [&](const Object& object) {
    return std::ranges::any_of(object.properties, [&](const Property& p) { return p.required && is_empty(p.value, depth - 1); });
  };
  return std::ranges::all_of(shapes.numbers, no_number) && std::ranges::all_of(shapes.strings, no_string) &&
         std::ranges::all_of(shapes.arrays, no_array) && std::ranges::all_of(shapes.objects, no_object);
}

}  // namespace aici::schema
