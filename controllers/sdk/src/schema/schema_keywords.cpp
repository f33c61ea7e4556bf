#include <algorithm>

#include "aici/regex/parser.hpp"
#include "aici/schema/evaluator.hpp"
#include "aici/schema/spelling.hpp"
#include "aici/schema/type_names.hpp"

// A schema's own keywords, type by type; schema_applicators.cpp has the keywords that apply other schemas to the same
// value.
namespace aici::schema {
namespace {

using json::Value;
using Kind = Value::Kind;
using regex::ExprId;
using regex::UNBOUNDED;
using Words = std::string_view;

enum Type : uint32_t { Null = 1, Boolean = 2, Integer = 4, Number = 8, String = 16, ArrayType = 32, ObjectType = 64, All = 123 };

constexpr Words TYPES[] = {"null", "boolean", "integer", "number", "string", "array", "object"};

constexpr Words KNOWN[] = {
    "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
    "pattern", "format", "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains",
    "minContains", "maxContains", "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
    "minProperties", "maxProperties", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "$dynamicRef", "$recursiveRef", "dependentRequired",
    "dependentSchemas", "dependencies", "unevaluatedProperties", "unevaluatedItems", "nullable", "discriminator"};

// Keywords that annotate the value, or hold schemas for others, and constrain nothing.
constexpr Words NOTES[] = {
    "title", "description", "default", "example", "examples", "$comment", "deprecated", "readOnly", "writeOnly", "$schema", "$id",
    "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$defs", "definitions", "components", "$vocabulary", "contentMediaType",
    "contentEncoding", "contentSchema", "xml", "externalDocs", "markdownDescription", "enumDescriptions", "markdownEnumDescriptions", "deprecationMessage",
    "errorMessage", "defaultSnippets", "doNotSuggest", "suggestSortText", "tsType", "enumNames", "propertyOrder"};

constexpr std::string_view GRAMMAR = "x-aici-grammar";

bool is_same(const Value& x, const Value& y) {
  auto is_same_text = [](const Text& a, const Text& b) { return a.view() == b.view(); };
  return x.kind == y.kind && x.text.view() == y.text.view() && std::ranges::equal(x.keys, y.keys, is_same_text) &&
         std::ranges::equal(x.items, y.items, is_same);
}

bool is_in(std::span<const Words> words, std::string_view word) { return std::ranges::find(words, word) != words.end(); }

}  // namespace

void Evaluator::check_keywords(const Value& schema) {
  for (const Text& key : schema.keys) {
    std::string_view name = key;
    if (is_in(KNOWN, name) || is_in(NOTES, name) || name.starts_with("x-")) continue;
    unknown_keyword(schema, name);
  }
}

// An annotation, as the specification says; a `$ref` may still point into it.
void Evaluator::unknown_keyword(const Value& schema, std::string_view name) {
  Text why("unknown keyword");
  std::string_view near = neighbour(name, KNOWN);
  if (near.empty()) near = neighbour(name, NOTES);
  if (!near.empty()) why << ", one letter from " << near;
  not_enforced(schema, name, why);
}

uint32_t Evaluator::type_mask(const Value& schema) {
  const Value* type = schema.find("type");
  if (!type) return All;
  uint32_t mask = 0;
  auto add = [&](const Value& name) {
    Words usual = name.is(Kind::String) ? usual_type_name(name.text) : "";
    if (usual.empty()) return false;
    auto place = std::ranges::find(TYPES, usual);
    if (usual != name.text.view() || place == std::end(TYPES))
      not_enforced(schema, "type", Text("no type of JSON Schema: ") << name.text << " is read as " << usual << (usual == "any" ? " type" : ""));
    mask |= place == std::end(TYPES) ? static_cast<uint32_t>(All) : 1u << (place - std::begin(TYPES));
    return true;
  };
  bool known = type->is(Kind::Array) ? !type->items.empty() && std::ranges::all_of(type->items, add) : add(*type);
  if (!known) refuse(schema, "type", "must be null, boolean, integer, number, string, array or object, or a list of these");
  return mask;
}

// The schema without its applicators.
Shapes Evaluator::own_keywords(const Value& schema) {
  uint32_t types = type_mask(schema);
  Shapes shapes{.null = (types & Null) != 0, .no = (types & Boolean) != 0, .yes = (types & Boolean) != 0};
  bool has_numbers = types & (Number | Integer), has_strings = types & String;
  FormatLimits format = own_format(schema, has_numbers, has_strings);
  if (Numbers both; schema::intersect(own_numbers(schema, types), format.numbers, both) && has_numbers) shapes.numbers.push_back(both);
  if (Strings both; schema::intersect(own_strings(schema), format.strings, strings_, both) && has_strings) shapes.strings.push_back(both);
  if (Array array, both; (types & ArrayType) && intersect(own_array(schema), array, both)) shapes.arrays.push_back(both);
  if (Object both; (types & ObjectType) && intersect(own_object(schema), any_object(), both)) shapes.objects.push_back(both);
  return shapes;
}

const Decimal* Evaluator::number(const Value& schema, std::string_view keyword, Decimal& out) {
  const Value* value = schema.find(keyword);
  if (!value) return nullptr;
  if (!value->is(Kind::Number)) return refuse(schema, keyword, "must be a number"), nullptr;
  std::optional<Decimal> number = Decimal::from_json(value->text);
  if (!number) return may_drop(schema, keyword, "at most 400 places before and after the point"), nullptr;
  out = *number;
  return &out;
}

Numbers Evaluator::own_numbers(const Value& schema, uint32_t types) {
  Numbers numbers;
  Decimal value;
  if ((types & Integer) && !(types & Number)) numbers.whole = Numbers::Whole::Only;
  // Draft 4 has true and false here.
  auto strict = [&](std::string_view keyword) {
    const Value* flag = schema.find(keyword);
    return flag && flag->is(Kind::True);
  };
  if (number(schema, "minimum", value)) numbers.min = Bound{value, strict("exclusiveMinimum")};
  if (number(schema, "maximum", value)) numbers.max = Bound{value, strict("exclusiveMaximum")};
  auto is_flag = [&](std::string_view keyword) { return schema.find(keyword) && schema.find(keyword)->is_boolean(); };
  if (!is_flag("exclusiveMinimum") && number(schema, "exclusiveMinimum", value))
    if (!numbers.min || compare(value, numbers.min->value) >= 0) numbers.min = Bound{value, true};
  if (!is_flag("exclusiveMaximum") && number(schema, "exclusiveMaximum", value))
    if (!numbers.max || compare(value, numbers.max->value) <= 0) numbers.max = Bound{value, true};
  if (number(schema, "multipleOf", value)) {
    int32_t scale = value.num_fraction_digits();
    if (value.negative || value.is_zero()) {
      refuse(schema, "multipleOf", "must be greater than 0");
    } else if (scale > 18 || value.scaled(scale).value_or(UINT64_MAX) > 1000000000000000) {
      may_drop(schema, "multipleOf", "at most 15 digits and 18 places after the point");
    } else {
      numbers.multiples.push_back(value);
    }
  }
  // Bounds that no double exceeds: numbers end before anyway (see language), and long bounds are long automata.
  auto is_beyond = [](const std::optional<Bound>& bound, bool negative) {
    return bound && bound->value.negative == negative && bound->value.point > 308;
  };
  if (is_beyond(numbers.min, true)) numbers.min.reset();
  if (is_beyond(numbers.max, false)) numbers.max.reset();
  return numbers;
}

uint32_t Evaluator::count(const Value& schema, std::string_view keyword, uint32_t absent) {
  Decimal value;
  if (!number(schema, keyword, value)) return absent;
  if (value.negative || !value.is_integer()) return refuse(schema, keyword, "must be a whole number, 0 or more"), absent;
  // Nothing longer is ever generated.
  return static_cast<uint32_t>(std::min<uint64_t>(value.scaled(0).value_or(UINT64_MAX), 1000000000));
}

Strings Evaluator::own_strings(const Value& schema) {
  Strings strings;
  strings.min_len = count(schema, "minLength", 0);
  strings.max_len = count(schema, "maxLength", UNBOUNDED);
  if (const Value* text = schema.find("pattern")) {
    if (!text->is(Kind::String)) {
      refuse(schema, "pattern", "must be a string");
    } else {
      strings.languages.push_back(pattern(schema, "pattern", text->text));
    }
  }
  if (const Value* text = schema.find(GRAMMAR)) strings.languages.push_back(grammar(schema, *text));
  std::erase(strings.languages, strings_.any());
  return strings;
}

// A keyword of our own: the string is a sentence of a grammar.
ExprId Evaluator::grammar(const Value& schema, const Value& text) {
  Text why;
  ExprId e = strings_.any();
  if (!text.is(Kind::String)) {
    why << "must be a string";
  } else if (!options_.read_grammar) {
    why << "is for the controller grammar: %json";
  } else {
    e = options_.read_grammar(text.text, exprs_, why);
  }
  if (!why.empty()) return refuse(schema, GRAMMAR, why), strings_.any();
  return e;
}

ExprId Evaluator::pattern(const Value& schema, std::string_view keyword, std::string_view pattern) {
  bool failed = exprs_.error() != nullptr;
  std::optional<regex::Problem> problem;
  regex::ParseOptions options{.encoding = regex::Encoding::JsonString, .search = true};
  if (options_.lenient) {  // an error of the arena stays: a pattern that may be dropped has its own arena first
    regex::Exprs apart;
    regex::parse(pattern, apart, problem, options);
  }
  ExprId e = problem ? regex::NOTHING : regex::parse(pattern, exprs_, problem, options);
  if (!problem) return e;
  if (failed) return strings_.any();  // said before, where it happened
  Text why;
  why << "at position " << problem->position << ": " << problem->message;
  may_drop(schema, keyword, why);
  return strings_.any();
}

const Value* Evaluator::list(const Value& schema, std::string_view keyword) {
  const Value* value = schema.find(keyword);
  if (value && !value->is(Kind::Array)) return refuse(schema, keyword, "must be a list"), nullptr;
  return value;
}

const Value* Evaluator::map(const Value& schema, std::string_view keyword) {
  const Value* value = schema.find(keyword);
  if (value && !value->is(Kind::Object)) return refuse(schema, keyword, "must be an object"), nullptr;
  return value;
}

Array Evaluator::own_array(const Value& schema) {
  Array array;
  const Value* items = schema.find("items");
  bool tuple = items && items->is(Kind::Array);  // draft-07
  if (const Value* prefix = tuple ? items : list(schema, "prefixItems"))
    for (const Value& item : prefix->items) array.prefix.push_back(conj_of(item));
  const Value* rest = tuple ? schema.find("additionalItems") : items;
  if (rest) array.rest = conj_of(*rest);
  array.min = count(schema, "minItems", 0);
  array.max = count(schema, "maxItems", UNBOUNDED);
  add_contains(schema, array);
  if (const Value* unique = schema.find("uniqueItems")) {
    if (!unique->is_boolean()) refuse(schema, "uniqueItems", "must be true or false");
    if (unique->is(Kind::True)) array.unique = &schema;
  }
  mark_evaluated(schema, array);
  return array;
}

void Evaluator::add_contains(const Value& schema, Array& array) {
  const Value* contains = schema.find("contains");
  if (!contains) return;
  uint32_t min = count(schema, "minContains", 1), max = count(schema, "maxContains", UNBOUNDED);
  if (min > 0 || max != UNBOUNDED) array.contains.push_back({conj_of(*contains), 0, min, max});
}

// As draft 3 says of a property, and many authors of tools since.
bool Evaluator::says_required(const Value& property) {
  const Value* flag = property.find("required");
  if (!flag || !flag->is(Kind::True)) return false;
  not_enforced(property, "required", "true is of draft 3: read as if the object's list `required` named the property");
  return true;
}

Object Evaluator::own_object(const Value& schema) {
  Object object;
  object.declares = schema.find("properties") != nullptr;
  for (std::string_view keyword : {"additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames"})
    object.speaks |= schema.find(keyword) != nullptr;
  const Value* order = schema.find("x-aici-property-order");
  object.keeps_order = order && order->is(Kind::String) && order->text.view() == "declared";
  if (const Value* named = map(schema, "properties"))
    for (size_t i = 0; i < named->items.size(); i++)
      object.properties.push_back({named->keys[i].view(), conj_of(named->items[i]), says_required(named->items[i]), Property::Place::Declared});
  ExprId rest = strings_.any();
  if (const Value* patterns = map(schema, "patternProperties"))
    for (size_t i = 0; i < patterns->items.size(); i++) {
      // Patterns with equal schemas count as one: every pattern apart would multiply the regions.
      auto is_alike = [&](const Value& other) { return is_same(other, patterns->items[i]); };
      if (std::any_of(patterns->items.begin(), patterns->items.begin() + static_cast<ptrdiff_t>(i), is_alike)) continue;
      std::vector<ExprId> alike;
      for (size_t j = i; j < patterns->items.size(); j++)
        if (is_alike(patterns->items[j])) alike.push_back(pattern(schema, "patternProperties", patterns->keys[j]));
      ExprId keys = exprs_.alt(alike);
      ConjId value = conj_of(patterns->items[i]);
      for (Property& property : object.properties)
        if (strings_.matches(keys, property.name)) property.value = meet(property.value, value);
      add_pattern(object.regions, rest, keys, value);
    }
  const Value* additional = schema.find("additionalProperties");
  if (rest != regex::NOTHING) object.regions.push_back({rest, additional ? conj_of(*additional) : ANYTHING});
  const Value* required = schema.find("required");
  // In the schema of a property, draft 3 has true or false here: see says_required.
  if (required && !required->is_boolean() && list(schema, "required"))
    for (const Value& name : required->items) {
      if (!name.is(Kind::String)) {
        refuse(schema, "required", "must be a list of strings");
        break;
      }
      auto same = std::ranges::find_if(object.properties, [&](const Property& p) { return p.name == name.text.view(); });
      if (same != object.properties.end()) {
        same->required = true;
      } else {
        object.properties.push_back({name.text.view(), value_of(object, name.text), true});
      }
    }
  if (const Value* names = schema.find("propertyNames")) {
    std::vector<ExprId> ways;
    for (const Strings& strings : shapes(conj_of(*names)).strings) ways.push_back(strings_.content(strings));
    keep_names(object, exprs_.alt(ways));
  }
  object.min = count(schema, "minProperties", 0);
  object.max = count(schema, "maxProperties", UNBOUNDED);
  mark_evaluated(schema, object);
  return object;
}

}  // namespace aici::schema
