#include <algorithm>

#include "aici/schema/evaluator.hpp"

// unevaluatedProperties and unevaluatedItems. Each alternative for arrays and objects knows the items and keys that its
// keywords have evaluated.
namespace aici::schema {

using json::Value;
using Kind = Value::Kind;
using regex::ExprId;
using regex::NOTHING;
using regex::UNBOUNDED;

// Whether `keyword` is a key anywhere in the document.
bool mentions(const Value& value, std::string_view keyword) {
  return value.find(keyword) || std::ranges::any_of(value.items, [&](const Value& item) { return mentions(item, keyword); });
}

void Evaluator::mark_evaluated(const Value& schema, Array& array) {
  if (!tracks_evaluated_) return;
  const Value* items = schema.find("items");
  bool is_tuple = items && items->is(Kind::Array);
  bool has_rest = is_tuple ? schema.find("additionalItems") != nullptr : items != nullptr;
  array.evaluated.len = has_rest ? UNBOUNDED : static_cast<uint32_t>(array.prefix.size());
  const Value* contains = schema.find("contains");
  if (contains && references_.draft() != Draft::Draft2019) array.evaluated.values.push_back(conj_of(*contains));
}

void Evaluator::mark_evaluated(const Value& schema, Object& object) {
  if (!tracks_evaluated_) return;
  EvaluatedKeys& evaluated = object.evaluated;
  if (const Value* named = map(schema, "properties")) evaluated.names.assign(named->keys.begin(), named->keys.end());
  std::vector<ExprId> keys;
  if (schema.find("additionalProperties")) keys.push_back(strings_.any());
  if (const Value* patterns = map(schema, "patternProperties"))
    for (const Text& text : patterns->keys) keys.push_back(pattern(schema, "patternProperties", text));
  evaluated.keys = exprs_.alt(keys);
}

EvaluatedItems Evaluator::joined(const EvaluatedItems& x, const EvaluatedItems& y) const {
  EvaluatedItems both{std::max(x.len, y.len), x.values};
  for (ConjId value : y.values)
    if (std::ranges::find(both.values, value) == both.values.end()) both.values.push_back(value);
  return both;
}

EvaluatedKeys Evaluator::joined(const EvaluatedKeys& x, const EvaluatedKeys& y) {
  EvaluatedKeys both{x.names, x.keys};
  for (std::string_view name : y.names)
    if (std::ranges::find(both.names, name) == both.names.end()) both.names.push_back(name);
  if (x.keys != y.keys) both.keys = exprs_.alt({x.keys, y.keys});
  return both;
}

// The arrays and objects of both: under anyOf, all alternatives that match evaluate.
Shapes Evaluator::both_composite(const Shapes& x, const Shapes& y) {
  Shapes left, right;
  left.arrays = x.arrays, left.objects = x.objects;
  right.arrays = y.arrays, right.objects = y.objects;
  return intersect(left, right);
}

Shapes Evaluator::unevaluated(const Value& schema, Shapes with) {
  if (const Value* value = schema.find("unevaluatedItems")) {
    std::vector<Array> limited;
    for (Array& array : with.arrays)
      if (Array limit = unevaluated_items(array.evaluated, conj_of(*value)), both; intersect(array, limit, both)) {
        both.evaluated.len = UNBOUNDED;
        limited.push_back(static_cast<Array&&>(both));
      }
    with.arrays = static_cast<std::vector<Array>&&>(limited);
  }
  if (const Value* value = schema.find("unevaluatedProperties")) {
    std::vector<Object> limited;
    for (Object& object : with.objects)
      if (Object limit = unevaluated_keys(object.evaluated, conj_of(*value)), both; intersect(object, limit, both)) {
        both.evaluated.keys = strings_.any();
        expand_some(static_cast<Object&&>(both), limited);
      }
    with.objects = static_cast<std::vector<Object>&&>(limited);
  }
  return with;
}

Array Evaluator::unevaluated_items(const EvaluatedItems& evaluated, ConjId value) {
  Array limit;
  if (evaluated.len == UNBOUNDED || value == ANYTHING) return limit;
  if (evaluated.values.empty()) {
    limit.prefix.assign(evaluated.len, ANYTHING);
    limit.rest = value;
    return limit;
  }
  // No item is outside of `value` and of all evaluated values.
  ConjId wrong = ANYTHING;
  std::vector<ConjId> values = evaluated.values;
  values.push_back(value);
  for (ConjId right : values) {
    std::vector<ConjId> other = outside(right);
    wrong = meet(wrong, other.empty() ? NEVER : other[0]);  // a schema is a conjunction of one: its outside has one part
  }
  if (wrong != NEVER) limit.contains.push_back({wrong, evaluated.len, 0, 0});
  return limit;
}

Object Evaluator::unevaluated_keys(const EvaluatedKeys& evaluated, ConjId value) {
  Object limit;
  for (std::string_view name : evaluated.names) limit.properties.push_back({name});
  if (evaluated.keys != NOTHING) limit.regions.push_back({evaluated.keys, ANYTHING});
  if (ExprId rest = strings_.outside(evaluated.keys); rest != NOTHING) limit.regions.push_back({rest, value});
  return limit;
}

}  // namespace aici::schema
