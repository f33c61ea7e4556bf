#include <algorithm>

#include "aici/schema/lowering.hpp"

namespace aici::schema {
namespace {

using json::Value;
using regex::EMPTY;
using regex::ExprId;
using regex::NOTHING;
using regex::UNBOUNDED;

uint32_t less(uint32_t count, uint32_t by) { return count == UNBOUNDED ? UNBOUNDED : count > by ? count - by : 0; }

}  // namespace

// "key": value of keys other than named properties.
ExprId Lowering::pairs_of(const Object& object, const std::vector<Region>& regions) {
  std::vector<ExprId> ways;
  for (const Region& region : regions) {
    std::vector<ExprId> named;
    for (const Property& property : object.properties)
      if (strings_.matches(region.keys, property.name)) named.push_back(strings_.spellings(property.name));
    ExprId keys = named.empty() ? region.keys : exprs_.both(region.keys, exprs_.complement(exprs_.alt(named)));
    if (keys != NOTHING) ways.push_back(join(strings_.in_quotes(keys), colon_and(value(region.value))));
  }
  return exprs_.alt(ways);
}

ExprId Lowering::object(const Object& object, const Value& schema) {
  if (object.some.empty()) return object_with(object, {pairs_of(object, object.regions), EMPTY}, schema);
  if (object.some.size() > 1) {
    evaluator_.refuse(schema, "", "what a negation (not, oneOf, if) asks of its keys is too complex");
    return NOTHING;
  }
  // The required key is a named key, or some other key.
  const Region& wanted = object.some[0];
  std::vector<ExprId> ways;
  Object rest = object;
  rest.some.clear();
  for (size_t p = 0; p < object.properties.size(); p++) {
    ConjId value = evaluator_.meet(object.properties[p].value, wanted.value);
    if (value == NEVER || !strings_.matches(wanted.keys, object.properties[p].name)) continue;
    Object one = rest;
    one.properties[p].value = value, one.properties[p].required = true;
    ways.push_back(this->object(one, schema));
  }
  std::vector<Region> witness;
  for (const Region& region : object.regions) {
    ExprId keys = exprs_.both(region.keys, wanted.keys);
    ConjId value = evaluator_.meet(region.value, wanted.value);
    if (keys != NOTHING && value != NEVER) witness.push_back({keys, value});
  }
  ExprId pair = pairs_of(rest, witness);
  if (pair != NOTHING) ways.push_back(object_with(rest, {pairs_of(rest, rest.regions), pair}, schema));
  return exprs_.alt(ways);
}

// The text after the named properties, `num_before` of which are written, including the end.
ExprId Lowering::other_pairs(const Object& object, const Others& others, uint32_t num_before) {
  uint32_t min = less(object.min, num_before), max = less(object.max, num_before);
  ExprId end = join(space_, bytes("}"));
  ExprId next = join(comma_, others.pair);
  if (others.wanted != EMPTY) {
    ExprId first = num_before ? join(exprs_.repeat(next, 0, UNBOUNDED), comma_)
                              : join(space_, exprs_.repeat(join(others.pair, comma_), 0, UNBOUNDED));
    return join(join(first, others.wanted), join(exprs_.repeat(next, 0, UNBOUNDED), end));
  }
  if (num_before) return join(exprs_.repeat(next, min, max), end);
  ExprId none = min == 0 ? end : NOTHING;
  ExprId some = max > 0 ? join(join(space_, others.pair), join(exprs_.repeat(next, less(min, 1), less(max, 1)), end)) : NOTHING;
  return exprs_.alt({none, some});
}

// Backwards over the properties: for each number of keys written so far, the text that may follow.
ExprId Lowering::object_with(const Object& object, const Others& others, const Value& schema) {
  std::vector<ExprId> pairs;  // of the optional properties
  std::vector<bool> required;
  for (const Property& property : object.properties) {
    if (property.value == NEVER) continue;
    ExprId pair = join(strings_.quoted(property.name), colon_and(value(property.value)));
    if (pair == NOTHING && property.required) return NOTHING;
    if (pair != NOTHING) pairs.push_back(pair), required.push_back(property.required);
  }
  auto n = static_cast<uint32_t>(pairs.size());
  auto num_required = static_cast<uint32_t>(std::ranges::count(required, true));
  bool no_max = object.max == UNBOUNDED || (others.pair == NOTHING && object.max >= n);
  Object counted = object;
  if (no_max) counted.max = UNBOUNDED;
  if (counted.min <= num_required) counted.min = 0;
  if (others.wanted != EMPTY && (counted.min > 1 || !no_max)) {
    evaluator_.refuse(schema, "", "a negation (not, oneOf, if) asks for a key while minProperties or maxProperties counts them: too complex");
    return NOTHING;
  }
  if (others.wanted != EMPTY) counted.min = 0;
  // All counts from `cap` on are alike, unless there is a maximum.
  uint32_t cap = no_max ? std::max(counted.min, 1u) : std::min(counted.max, n);
  cap = std::min(cap, std::max(n, 1u));
  if (static_cast<uint64_t>(cap) * n > MAX_COUNTED) {
    evaluator_.refuse(schema, "", "minProperties or maxProperties with so many properties takes too many states");
    return NOTHING;
  }
  std::vector<ExprId> after;  // (counts,)
  for (uint32_t c = 0; c <= cap; c++) after.push_back(other_pairs(counted, others, c));
  std::vector<ExprId> first{after[0]};  // nothing is written yet: collected, and merged once
  for (uint32_t i = n; i-- > 0;) {
    std::vector<ExprId> now(after);
    if (required[i]) first.clear();
    if (counted.max > 0) first.push_back(join(join(space_, pairs[i]), after[std::min(1u, cap)]));
    for (uint32_t c = 1; c <= cap; c++) {
      uint32_t next = c < cap ? c + 1 : c;
      ExprId pair = c < counted.max ? join(comma_, pairs[i]) : NOTHING;
      if (next == c && no_max) {
        now[c] = join(required[i] ? pair : exprs_.alt({EMPTY, pair}), after[c]);
      } else {
        ExprId with = join(pair, after[next]);
        now[c] = required[i] ? with : exprs_.alt({after[c], with});
      }
    }
    after.swap(now);
  }
  return join(bytes("{"), exprs_.alt(first));
}

}  // namespace aici::schema
