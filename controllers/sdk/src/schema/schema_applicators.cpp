#include <algorithm>

#include "aici/schema/evaluator.hpp"
#include "aici/sort.hpp"

// Keywords that apply schemas to the value itself: $ref, allOf, anyOf, oneOf, not, if, dependencies.
namespace aici::schema {

using json::Value;
using Kind = Value::Kind;
using regex::ExprId;

constexpr size_t MAX_PAIRS = 5000;  // of objects, compared one by one

Shapes Evaluator::of_schema(const Value& schema) {
  if (schema.is(Kind::True)) return anything();
  if (schema.is(Kind::False)) return {};
  if (!schema.is(Kind::Object)) {
    refuse(schema, "", "a schema is an object, true or false");
    return {};
  }
  Shapes shapes = anything();
  if (references_.is_only_reference(schema)) return apply(schema, "$ref", *schema.find("$ref"), static_cast<Shapes&&>(shapes));
  check_keywords(schema);
  bool own = false;
  // Parts are merged in the order of writing, which decides the order of properties: the own properties come where
  // `properties` stands.
  std::string_view own_place = schema.find("properties") ? "properties" : "required";
  for (size_t i = 0; i < schema.keys.size(); i++) {
    std::string_view keyword = schema.keys[i];
    if (keyword == own_place) {
      shapes = intersect(shapes, own_keywords(schema));
      own = true;
    }
    shapes = apply(schema, keyword, schema.items[i], static_cast<Shapes&&>(shapes));
  }
  if (!own) shapes = intersect(own_keywords(schema), shapes);
  if (schema.find("unevaluatedProperties") || schema.find("unevaluatedItems")) shapes = unevaluated(schema, static_cast<Shapes&&>(shapes));
  if (const Value* nullable = schema.find("nullable")) shapes.null |= is_nullable(schema, *nullable);
  return shapes;
}

Shapes Evaluator::apply(const Value& schema, std::string_view keyword, const Value& value, Shapes with) {
  if (keyword == "enum") {
    if (const Value* values = list(schema, keyword)) return intersect(with, of_constants(values->items));
  } else if (keyword == "const") {
    return intersect(with, of_constant(value));
  } else if (keyword == "$ref" || keyword == "$dynamicRef" || keyword == "$recursiveRef") {
    const Value* target = nullptr;
    if (value.is(Kind::String))
      target = keyword == "$ref"          ? references_.target(schema, value.text)
               : keyword == "$dynamicRef" ? references_.dynamic_target(schema, value.text, scopes_[scope_])
                                          : references_.recursive_target(schema, scopes_[scope_]);
    if (target) return intersect(with, shapes(conj_of(*target)));
    if (!value.is(Kind::String)) return refuse(schema, keyword, "must be a string"), Shapes();
    may_drop(schema, keyword, "nothing in this document has that name");
  } else if (keyword == "allOf") {
    if (const Value* parts = list(schema, keyword))
      for (const Value& part : parts->items) with = intersect(with, shapes(conj_of(part)));
  } else if (keyword == "anyOf") {
    const Value* parts = list(schema, keyword);
    if (!parts) return with;
    Shapes any;
    for (const Value& part : parts->items) {
      Shapes one = alternative(schema, part);
      if (tracks_evaluated_) unite(any, both_composite(any, one));
      unite(any, static_cast<Shapes&&>(one));
    }
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

namespace {

bool is_list_of_strings(const Shapes& shapes) {
  return shapes.strings.size() == 1 && shapes.strings[0].values && shapes.size() == 1 && !shapes.null && !shapes.no && !shapes.yes;
}

// The strings in exactly one of the lists.
Shapes listed_once(const std::vector<Shapes>& lists) {
  std::vector<std::string_view> all;
  for (const Shapes& list : lists) all.insert(all.end(), list.strings[0].values->begin(), list.strings[0].values->end());
  sort(all, [](std::string_view x, std::string_view y) { return x < y; });
  Strings once;
  once.values.emplace();
  for (size_t i = 0; i < all.size(); i++)
    if ((i == 0 || all[i - 1] != all[i]) && (i + 1 == all.size() || all[i + 1] != all[i])) once.values->push_back(all[i]);
  Shapes shapes;
  if (!once.values->empty()) shapes.strings.push_back(static_cast<Strings&&>(once));
  return shapes;
}

}  // namespace

// Alternatives that may overlap are separated by removing from each alternative the values allowed by others.
Shapes Evaluator::exactly_one(const Value& schema, const Value& list) {
  std::vector<Shapes> ways;
  for (const Value& item : list.items) ways.push_back(alternative(schema, item));
  if (std::ranges::all_of(ways, is_list_of_strings)) return listed_once(ways);
  if (ways.size() > 500) {
    refuse(schema, "oneOf", "has more than 500 alternatives that are not lists of strings");
    return {};
  }
  Shapes one;
  for (size_t i = 0; i < ways.size(); i++) {
    Shapes mine = ways[i];
    for (size_t j = 0; j < ways.size(); j++)
      if (i != j) mine = without(static_cast<Shapes&&>(mine), ways[j]);
    unite(one, static_cast<Shapes&&>(mine));
  }
  return one;
}

// `shapes` without the values of `other`. Complements are large: what `other` has in common with nothing is left out,
// for objects one by one.
Shapes Evaluator::without(Shapes shapes, const Shapes& other) {
  Shapes objects, rest = static_cast<Shapes&&>(shapes), common = other;
  objects.objects.swap(rest.objects);
  common.objects.clear();
  if (!disjoint(rest, common)) rest = intersect(rest, complement(common));
  bool one_by_one = objects.objects.size() * other.objects.size() <= MAX_PAIRS;
  for (Object& object : objects.objects) {
    Shapes mine, removed;
    mine.objects.push_back(static_cast<Object&&>(object));
    for (const Object& theirs : other.objects) {
      Shapes single;
      single.objects.push_back(theirs);
      if (!one_by_one || !disjoint(mine, single)) removed.objects.push_back(theirs);
    }
    if (!removed.objects.empty()) mine = intersect(mine, complement(removed));
    unite(rest, static_cast<Shapes&&>(mine));
  }
  return rest;
}

Shapes Evaluator::if_then_else(const Value& schema, const Value& condition) {
  const Value *then = schema.find("then"), *otherwise = schema.find("else");
  if (!then && !otherwise && !tracks_evaluated_) return anything();
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

}  // namespace aici::schema
