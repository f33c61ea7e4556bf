#include <algorithm>

#include "aici/schema/lowering.hpp"
#include "aici/sort.hpp"

namespace aici::schema {

using json::Value;
using regex::EMPTY;
using regex::EntryList;
using regex::ExprId;
using regex::NOTHING;
using regex::UNBOUNDED;

struct Lowering::Members {
  struct Named {
    std::string_view name;
    ExprId value;
    bool required;
  };
  std::vector<Named> named{};              // that can be written, in the order of the schema
  std::vector<Named> free{};               // the same, in any order with the others
  std::vector<EntryList::Other> others{};  // disjoint from the names
  bool wanted = false;                     // one of the others that are wanted must come
};

// Of a closed object: a key of which only a negation speaks.
static bool is_unnamed(const Property& property) { return property.place == Property::Place::Free && !property.required; }

bool Lowering::is_closed(const Object& object) const {
  auto num_names = std::ranges::count_if(object.properties, [](const Property& p) { return p.value != NEVER && !is_unnamed(p); });
  return options_.objects == Objects::Closed && object.declares && !object.speaks && object.some.empty() &&
         object.min <= static_cast<uint32_t>(num_names);
}

ExprId Lowering::object(Object object, const Value& schema) {
  if (is_closed(object)) {
    object.regions.clear();
    std::erase_if(object.properties, is_unnamed);
  }
  if (object.some.empty()) return object_with(object, {}, schema);
  if (object.some.size() > 1) {
    evaluator_.refuse(schema, "", "what a negation (not, oneOf, if) asks of its keys is too complex");
    return NOTHING;
  }
  // The key that must come is a named key, or some other key.
  const Region wanted = object.some[0];
  object.some.clear();
  std::vector<ExprId> ways;
  for (size_t p = 0; p < object.properties.size(); p++) {
    ConjId value = evaluator_.meet(object.properties[p].value, wanted.value);
    if (value == NEVER || !strings_.matches(wanted.keys, object.properties[p].name)) continue;
    Object one = object;
    one.properties[p].value = value, one.properties[p].required = true;
    ways.push_back(object_with(one, {}, schema));
  }
  std::vector<Region> witness;
  for (const Region& region : object.regions) {
    ExprId keys = exprs_.both(region.keys, wanted.keys);
    ConjId value = evaluator_.meet(region.value, wanted.value);
    if (keys != NOTHING && value != NEVER) witness.push_back({keys, value});
  }
  if (!witness.empty()) ways.push_back(object_with(object, witness, schema));
  return exprs_.alt(ways);
}

// Entries of keys other than named properties.
void Lowering::add_others(const Object& object, const std::vector<Region>& regions, bool wanted, std::vector<EntryList::Other>& others) {
  for (const Region& region : regions) {
    std::vector<ExprId> named;
    for (const Property& property : object.properties)
      if (strings_.matches(region.keys, property.name)) named.push_back(strings_.spellings(property.name));
    ExprId keys = named.empty() ? region.keys : exprs_.both(region.keys, exprs_.complement(exprs_.alt(named)));
    if (plain_) keys = strings_.plain(keys);
    if (keys == NOTHING) continue;
    if (ExprId pair = value(region.value); pair != NOTHING) others.push_back({keys, pair, wanted});
  }
}

// `wanted`: regions one of whose keys must come.
ExprId Lowering::object_with(const Object& object, const std::vector<Region>& wanted, const Value& schema) {
  Members members;
  bool any_order = options_.property_order == PropertyOrder::Any && !object.keeps_order;
  for (const Property& property : object.properties) {
    ExprId value = property.value == NEVER ? NOTHING : this->value(property.value);
    if (value == NOTHING && property.required) return NOTHING;
    if (value == NOTHING) continue;
    bool is_free = any_order || property.place == Property::Place::Free;
    (is_free ? members.free : members.named).push_back({property.name, value, property.required});
  }
  add_others(object, object.regions, false, members.others);
  add_others(object, wanted, true, members.others);
  members.wanted = !wanted.empty();
  return as_declared(object, members, schema);
}

// For each number of properties written in the order of the schema: the text after them, with the end.
std::vector<ExprId> Lowering::in_any_order_after(const Object& object, const Members& members, uint32_t most) {
  ExprId end = join(space_, bytes("}"));
  bool is_end = members.others.empty() && members.free.empty();
  EntryList list{.others = members.others, .first = space_, .next = comma_, .colon = colon_, .end = end, .min = object.min, .max = object.max};
  for (const Members::Named& named : members.free) {
    Text key = strings_.canonical_quoted(named.name);
    list.names.push_back({Text(key.view().substr(1)), named.value, named.required});
  }
  sort(list.names, [](const EntryList::Name& x, const EntryList::Name& y) { return x.key.view() < y.key.view(); });
  uint32_t number = is_end ? 0 : exprs_.add_list(static_cast<EntryList&&>(list));
  std::vector<ExprId> after;
  for (uint32_t count = 0; count <= most; count++)
    after.push_back(!is_end                                                          ? exprs_.entries(number, count, members.wanted)
                    : !members.wanted && count >= object.min && count <= object.max ? end
                                                                                     : NOTHING);
  return after;
}

// Backwards over the properties: for each number of keys written so far, the text that may follow.
ExprId Lowering::as_declared(const Object& object, Members& members, const Value& schema) {
  auto n = static_cast<uint32_t>(members.named.size());
  auto num_required = static_cast<uint32_t>(std::ranges::count_if(members.named, &Members::Named::required) +
                                            std::ranges::count_if(members.free, &Members::Named::required));
  bool no_max = object.max == UNBOUNDED || (members.others.empty() && object.max >= n + members.free.size());
  Object counted = object;
  if (no_max) counted.max = UNBOUNDED;
  if (counted.min <= num_required) counted.min = 0;
  // All counts from `cap` on are alike, unless there is a maximum.
  uint32_t cap = no_max ? std::max(counted.min, 1u) : std::min(counted.max, n);
  cap = std::min(cap, std::max(n, 1u));
  if (static_cast<uint64_t>(cap) * n > MAX_COUNTED) {
    evaluator_.refuse(schema, "", "minProperties or maxProperties with so many properties takes too many states");
    return NOTHING;
  }
  std::vector<ExprId> after = in_any_order_after(counted, members, cap);  // (counts,)
  std::vector<ExprId> first{after[0]};  // nothing is written yet: collected, and merged once
  for (uint32_t i = n; i-- > 0;) {
    const Members::Named& named = members.named[i];
    ExprId entry = join(strings_.quoted(named.name), colon_, named.value);
    std::vector<ExprId> now(after);
    if (named.required) first.clear();
    if (counted.max > 0) first.push_back(join(space_, entry, after[std::min(1u, cap)]));
    for (uint32_t c = 1; c <= cap; c++) {
      uint32_t next = c < cap ? c + 1 : c;
      ExprId pair = c < counted.max ? join(comma_, entry) : NOTHING;
      if (next == c && no_max) {
        now[c] = join(named.required ? pair : exprs_.alt({EMPTY, pair}), after[c]);
      } else {
        ExprId with = join(pair, after[next]);
        now[c] = named.required ? with : exprs_.alt({after[c], with});
      }
    }
    after.swap(now);
  }
  return join(bytes("{"), exprs_.alt(first));
}

}  // namespace aici::schema
