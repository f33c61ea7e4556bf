#include <algorithm>

#include "aici/schema/evaluator.hpp"

namespace aici::schema {

using regex::ExprId;
using regex::NOTHING;

constexpr size_t MAX_SPLIT = 8;  // properties of a complement

namespace {

bool is_declared(const Property& property) { return property.place == Property::Place::Declared; }

}  // namespace

// The conjunction for the value under `name`.
ConjId Evaluator::value_of(const Object& object, std::string_view name) {
  for (const Property& property : object.properties)
    if (property.name == name) return property.value;
  for (const Region& region : object.regions)
    if (region.keys == strings_.any() || strings_.matches(region.keys, name)) return region.value;
  return NEVER;
}

// Consists of `const` and `enum`: quick to evaluate, and enough to tell alternatives apart.
bool Evaluator::is_listed(ConjId conj) const {
  auto is_plain = [](const Text& key) {
    return key.view() == "const" || key.view() == "enum" || key.view() == "type" || key.view() == "title" ||
           key.view() == "description" || key.view() == "default";
  };
  return conj > NEVER && std::ranges::all_of(conjs_[conj], [&](LiteralId id) {
    const Literal& literal = literals_[id / 4];
    return literal.constant || ((literal.at->find("const") || literal.at->find("enum")) && std::ranges::all_of(literal.at->keys, is_plain));
  });
}

bool Evaluator::intersect(const Object& x, const Object& y, Object& both) {
  both.properties.clear(), both.regions.clear();
  both.some = x.some;
  both.some.insert(both.some.end(), y.some.begin(), y.some.end());
  both.declares = x.declares || y.declares, both.speaks = x.speaks || y.speaks;
  both.keeps_order = x.keeps_order || y.keeps_order;
  auto find = [](const Object& object, std::string_view name) -> const Property* {
    for (const Property& property : object.properties)
      if (property.name == name) return &property;
    return nullptr;
  };
  for (const Property& property : x.properties)
    if (const Property* theirs = is_listed(property.value) ? find(y, property.name) : nullptr)
      if ((property.required || theirs->required) && is_listed(theirs->value) && intersect(shapes(property.value), shapes(theirs->value)).empty())
        return false;
  std::vector<Property> later, free;
  bool possible = true;
  auto add = [&](const Property& mine, const Object& other, const Property* theirs) {
    Property met = mine;
    met.value = meet(mine.value, theirs ? theirs->value : value_of(other, mine.name));
    if (theirs) met.required |= theirs->required, met.place = std::max(met.place, theirs->place);
    possible &= met.value != NEVER || !met.required;
    (is_declared(met) ? both.properties : met.place == Property::Place::Late ? later : free).push_back(met);
  };
  for (const Property& property : x.properties) {
    const Property* theirs = find(y, property.name);
    if (is_declared(property) || !theirs || !is_declared(*theirs)) add(property, y, theirs);
  }
  for (const Property& property : y.properties) {
    const Property* theirs = find(x, property.name);
    if (!theirs || (is_declared(property) && !is_declared(*theirs))) add(property, x, theirs);
  }
  both.properties.insert(both.properties.end(), later.begin(), later.end());
  both.properties.insert(both.properties.end(), free.begin(), free.end());
  if (!possible) return false;
  for (const Region& a : x.regions)
    for (const Region& b : y.regions) {
      ConjId value = meet(a.value, b.value);
      ExprId keys = a.keys == strings_.any() ? b.keys : b.keys == strings_.any() ? a.keys : exprs_.both(a.keys, b.keys);
      if (value != NEVER && keys != NOTHING) both.regions.push_back({keys, value});
    }
  both.evaluated = joined(x.evaluated, y.evaluated);
  both.min = std::max(x.min, y.min), both.max = std::min(x.max, y.max);
  auto possible_names = std::ranges::count_if(both.properties, [](const Property& p) { return p.value != NEVER; });
  auto required_names = std::ranges::count_if(both.properties, [](const Property& p) { return p.required; });
  if (both.regions.empty()) both.max = std::min(both.max, static_cast<uint32_t>(possible_names));
  both.min = std::max(both.min, static_cast<uint32_t>(required_names));
  return both.min <= both.max;
}

// If only named properties can be the key required by `some`, these are the alternatives.
void Evaluator::expand_some(Object object, std::vector<Object>& out) {
  for (size_t i = 0; i < object.some.size(); i++) {
    Region wanted = object.some[i];
    bool may_be_other = std::ranges::any_of(object.regions, [&](const Region& region) {
      return exprs_.both(region.keys, wanted.keys) != NOTHING && meet(region.value, wanted.value) != NEVER;
    });
    if (may_be_other) continue;
    object.some.erase(object.some.begin() + static_cast<ptrdiff_t>(i));
    for (size_t p = 0; p < object.properties.size(); p++) {
      ConjId value = meet(object.properties[p].value, wanted.value);
      if (value == NEVER || !strings_.matches(wanted.keys, object.properties[p].name)) continue;
      Object one = object;
      one.properties[p].value = value, one.properties[p].required = true;
      expand_some(static_cast<Object&&>(one), out);
    }
    return;
  }
  out.push_back(static_cast<Object&&>(object));
}

std::vector<Object> Evaluator::complement(const Object& object) {
  std::vector<Object> outside;
  if (!object.some.empty()) refuse(*current_, "", "a negation within a negation is too complex here");
  auto add = [&]() -> Object& { return outside.emplace_back(any_object()); };
  auto num_required = std::ranges::count_if(object.properties, [](const Property& p) { return p.required; });
  if (object.min > static_cast<uint32_t>(num_required)) add().max = object.min - 1;
  // Few properties: the alternatives exclude each other, so that products of complements stay small.
  bool splits = object.properties.size() <= MAX_SPLIT;
  Object before = any_object();
  for (const Property& property : object.properties) {
    // Absent, or another value: the first alternative is both.
    std::vector<ConjId> others = property.value != ANYTHING ? this->outside(property.value) : std::vector<ConjId>();
    if (property.required && others.empty()) others.push_back(NEVER);
    for (ConjId other : others)
      outside.emplace_back(before).properties.push_back({property.name, other, !property.required || other != others[0], Property::Place::Free});
    if (splits && (property.required || property.value != ANYTHING)) before.properties.push_back({property.name, quiet(property.value), property.required, Property::Place::Free});
  }
  bool open = object.regions.size() == 1 && object.regions[0].keys == strings_.any() && object.regions[0].value == ANYTHING;
  bool counted = object.max != regex::UNBOUNDED && !(object.regions.empty() && object.max >= object.properties.size());
  if (counted) add().min = object.max + 1;
  if (!open) {
    // Some key beyond the named keys has a wrong value or must be absent.
    std::vector<Region> wrong;
    ExprId rest = strings_.any();
    for (const Region& region : object.regions) {
      rest = exprs_.both(rest, exprs_.complement(region.keys));
      if (region.value == ANYTHING) continue;
      for (ConjId other : this->outside(region.value)) wrong.push_back({region.keys, other});
    }
    if (rest != NOTHING) wrong.push_back({rest, ANYTHING});
    for (Region& region : wrong) {
      for (const Property& property : object.properties)
        region.keys = exprs_.both(region.keys, exprs_.complement(strings_.spellings(property.name)));
      if (region.keys != NOTHING) add().some.push_back(region);
    }
  }
  return outside;
}

// Keys that match `keys` are also `value`; `rest` becomes the language not matched by any pattern so far.
void Evaluator::add_pattern(std::vector<Region>& regions, ExprId& rest, ExprId keys, ConjId value) {
  std::vector<Region> split;
  for (const Region& region : regions) {
    ExprId inside = exprs_.both(region.keys, keys);
    if (inside != NOTHING) split.push_back({inside, meet(region.value, value)});
    ExprId outside = inside == region.keys ? NOTHING : exprs_.both(region.keys, exprs_.complement(keys));
    if (outside != NOTHING) split.push_back({outside, region.value});
  }
  if (ExprId inside = exprs_.both(rest, keys); inside != NOTHING) split.push_back({inside, value});
  rest = exprs_.both(rest, exprs_.complement(keys));
  regions = static_cast<std::vector<Region>&&>(split);
}

// Only names within `keys`.
void Evaluator::keep_names(Object& object, ExprId keys) {
  for (Property& property : object.properties)
    if (!strings_.matches(keys, property.name)) property.value = NEVER;
  std::vector<Region> kept;
  for (const Region& region : object.regions)
    if (ExprId inside = exprs_.both(region.keys, keys); inside != NOTHING) kept.push_back({inside, region.value});
  object.regions = static_cast<std::vector<Region>&&>(kept);
}

}  // namespace aici::schema
