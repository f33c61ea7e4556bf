#include <algorithm>

#include "aici/schema/evaluator.hpp"

// Keywords that apply schemas to the value itself: $ref, allOf, anyOf, oneOf, not, if, dependencies, unevaluated.
namespace aici::schema {

using json::Value;
using Kind = Value::Kind;
using regex::ExprId;

Shapes Evaluator::of_schema(const Value& schema) {
  if (schema.is(Kind::True)) return anything();
  if (schema.is(Kind::False)) return {};
  if (!schema.is(Kind::Object)) {
    refuse(schema, "", "a schema is an object, true or false");
    return {};
  }
  if (!check_keywords(schema)) return {};
  Shapes shapes = anything();
  bool own = false;
  // Parts are merged in the order of writing, which decides the order of properties.
  for (size_t i = 0; i < schema.keys.size(); i++) {
    std::string_view keyword = schema.keys[i];
    if (!own && (keyword == "properties" || keyword == "required")) {
      shapes = intersect(shapes, own_keywords(schema));
      own = true;
    }
    shapes = apply(schema, keyword, schema.items[i], static_cast<Shapes&&>(shapes));
  }
  if (!own) shapes = intersect(own_keywords(schema), shapes);
  if (schema.find("unevaluatedProperties") || schema.find("unevaluatedItems")) shapes = unevaluated(schema, static_cast<Shapes&&>(shapes));
  return shapes;
}

Shapes Evaluator::apply(const Value& schema, std::string_view keyword, const Value& value, Shapes with) {
  if (keyword == "enum") {
    if (const Value* values = list(schema, keyword)) return intersect(with, of_constants(values->items));
  } else if (keyword == "const") {
    return intersect(with, of_constant(value));
  } else if (keyword == "$ref") {
    const Value* target = value.is(Kind::String) ? references_.target(schema, value.text) : nullptr;
    if (target) return intersect(with, shapes(conj_of(*target)));
    refuse(schema, keyword, value.is(Kind::String) ? "nothing in this document has that name" : "must be a string");
  } else if (keyword == "allOf") {
    if (const Value* parts = list(schema, keyword))
      for (const Value& part : parts->items) with = intersect(with, shapes(conj_of(part)));
  } else if (keyword == "anyOf") {
    const Value* parts = list(schema, keyword);
    if (!parts) return with;
    Shapes any;
    for (const Value& part : parts->items) unite(any, shapes(conj_of(part)));
    return intersect(with, any);
  } else if (keyword == "oneOf") {
    if (const Value* parts = list(schema, keyword)) return intersect(with, exactly_one(schema, *parts));
  } else if (keyword == "not") {
    return intersect(with, complement(shapes(conj_of(value))));
  } else if (keyword == "if") {
    return intersect(with, if_then_else(schema, value));
  } else if (keyword == "dependentRequired" || keyword == "dependentSchemas" || keyword == "dependencies") {
    if (const Value* rules = map(schema, keyword)) return dependencies(*rules, static_cast<Shapes&&>(with));
  }
  return with;
}

// Alternatives that may overlap are separated by removing from each alternative the values allowed by others.
Shapes Evaluator::exactly_one(const Value& schema, const Value& list) {
  if (list.items.size() > 500) {
    refuse(schema, "oneOf", "has more than 500 alternatives");
    return {};
  }
  Shapes one;
  for (const Value& item : list.items) {
    Shapes mine = shapes(conj_of(item));
    for (const Value& other : list.items) {
      if (&other == &item) continue;
      const Shapes& theirs = shapes(conj_of(other));
      if (!disjoint(mine, theirs)) mine = intersect(mine, complement(theirs));
    }
    unite(one, static_cast<Shapes&&>(mine));
  }
  return one;
}

Shapes Evaluator::if_then_else(const Value& schema, const Value& condition) {
  const Value *then = schema.find("then"), *otherwise = schema.find("else");
  if (!then && !otherwise) return anything();
  const Shapes& when = shapes(conj_of(condition));
  Shapes both = then ? intersect(when, shapes(conj_of(*then))) : when;
  Shapes neither = complement(when);
  unite(both, otherwise ? intersect(neither, shapes(conj_of(*otherwise))) : static_cast<Shapes&&>(neither));
  return both;
}

// Each key is absent, or present with its dependencies.
Shapes Evaluator::dependencies(const Value& rules, Shapes with) {
  for (size_t i = 0; i < rules.items.size(); i++) {
    const Value& rule = rules.items[i];
    std::string_view key = rules.keys[i];
    Shapes present = anything();
    Object& object = present.objects[0];
    object.properties.push_back({key, ANYTHING, true});
    if (rule.is(Kind::Array)) {
      for (const Value& name : rule.items) {
        if (!name.is(Kind::String)) {
          refuse(rules, key, "must be a list of strings");
          return {};
        }
        if (name.text.view() != key) object.properties.push_back({name.text.view(), ANYTHING, true});
      }
    } else {
      present = intersect(present, shapes(conj_of(rule)));
    }
    Shapes either;
    either.objects.push_back(any_object());
    either.objects[0].properties.push_back({key, NEVER});
    either.objects.insert(either.objects.end(), present.objects.begin(), present.objects.end());
    // A dependency concerns only objects.
    Shapes others = anything();
    others.objects.clear();
    unite(others, static_cast<Shapes&&>(either));
    with = intersect(with, others);
  }
  return with;
}

// The names and items covered by the schema and by schemas that surely apply with it (allOf, $ref). Returns false if
// the coverage depends on the value.
bool Evaluator::collect_evaluated(const Value& schema, std::string_view keyword, Object& known, std::vector<ExprId>& patterns, bool& all,
                                  uint32_t depth) {
  if (!schema.is(Kind::Object)) return true;
  if (depth > 32) return false;
  for (size_t i = 0; i < schema.keys.size(); i++) {
    std::string_view key = schema.keys[i];
    const Value& value = schema.items[i];
    bool nested = depth > 0 && key == keyword;
    if (key == "anyOf" || key == "oneOf" || key == "if" || key == "dependentSchemas" || key == "dependencies" || nested) return false;
    if (key == "allOf" && value.is(Kind::Array)) {
      for (const Value& part : value.items)
        if (!collect_evaluated(part, keyword, known, patterns, all, depth + 1)) return false;
    } else if (key == "$ref" && value.is(Kind::String)) {
      const Value* target = references_.target(schema, value.text);
      if (target && !collect_evaluated(*target, keyword, known, patterns, all, depth + 1)) return false;
    } else if (keyword == "unevaluatedProperties") {
      if (key == "properties")
        for (const Text& name : value.keys) known.properties.push_back({name.view()});
      if (key == "patternProperties")
        for (const Text& text : value.keys) patterns.push_back(pattern(schema, key, text));
      all |= key == "additionalProperties";
    } else {
      if (key == "contains") return false;
      if (key == "prefixItems" || (key == "items" && value.is(Kind::Array))) {
        known.min = std::max(known.min, static_cast<uint32_t>(value.items.size()));
        all |= key == "items" && schema.find("additionalItems");
      } else {
        all |= key == "items";
      }
    }
  }
  return true;
}

Shapes Evaluator::unevaluated(const Value& schema, Shapes with) {
  for (std::string_view keyword : {"unevaluatedProperties", "unevaluatedItems"}) {
    const Value* value = schema.find(keyword);
    if (!value || value->is(Kind::True)) continue;
    Object known;
    std::vector<ExprId> patterns;
    bool all = false;
    if (!collect_evaluated(schema, keyword, known, patterns, all, 0)) {
      may_drop(schema, keyword, "what is evaluated must not depend on the value: beside properties, items, allOf and $ref only");
      continue;
    }
    if (all) continue;
    Shapes limit = anything();
    if (std::string_view(keyword) == "unevaluatedItems") {
      limit.arrays[0].prefix.assign(known.min, ANYTHING);
      limit.arrays[0].rest = conj_of(*value);
    } else {
      ExprId rest = strings_.any();
      for (ExprId keys : patterns) add_pattern(known.regions, rest, keys, ANYTHING);
      known.regions.push_back({rest, conj_of(*value)});
      // A name covered by two parts is listed once.
      std::vector<Property> names;
      for (const Property& property : known.properties)
        if (std::ranges::none_of(names, [&](const Property& p) { return p.name == property.name; })) names.push_back(property);
      known.properties = names;
      limit.objects[0] = known;
    }
    with = intersect(with, limit);
  }
  return with;
}

}  // namespace aici::schema
