#include <algorithm>

#include "aici/schema/evaluator.hpp"

// Keywords of OpenAPI: nullable, and discriminator beside oneOf and anyOf. Under a `$schema` of JSON Schema these are
// annotations.
namespace aici::schema {

using json::Value;
using Kind = Value::Kind;

bool Evaluator::is_nullable(const Value& schema, const Value& nullable) {
  if (!nullable.is(Kind::True)) return false;
  if (references_.draft() == Draft::Unsaid) return true;
  not_enforced(schema, "nullable", "a keyword of OpenAPI, not of the draft in $schema: write null into `type`");
  return false;
}

// `part`, an alternative of `schema`. With a discriminator the tag is a name of the alternative, unless the alternative
// lists other values for the tag.
Shapes Evaluator::alternative(const Value& schema, const Value& part) {
  Shapes one = shapes(conj_of(part));
  const Value* discriminator = schema.find("discriminator");
  const Value* tag = discriminator && references_.draft() == Draft::Unsaid ? discriminator->find("propertyName") : nullptr;
  if (!tag || !tag->is(Kind::String)) return one;
  Value names = tag_values(schema, *discriminator, part);
  if (names.items.empty()) return one;
  made_.push_back(std::make_unique<Value>());
  Value& list = *made_.back();
  list.kind = Kind::Object;
  list.keys.emplace_back("enum");
  list.items.push_back(static_cast<Value&&>(names));
  Shapes tagged;
  tagged.objects.push_back(any_object());
  tagged.objects[0].properties.push_back({tag->text.view(), conj_of(list)});  // `required` says whether the tag must come
  Shapes both = intersect(one, tagged);
  std::erase_if(both.objects, [&](const Object& object) { return is_empty(value_of(object, tag->text), 2); });
  return both.objects.empty() ? one : both;
}

// The names in `mapping` of what `part` refers to; without any, the last step of the reference.
Value Evaluator::tag_values(const Value& schema, const Value& discriminator, const Value& part) {
  Value names;
  names.kind = Kind::Array;
  const Value* reference = part.find("$ref");
  if (!reference || !reference->is(Kind::String)) return names;
  const Value* target = references_.target(part, reference->text);
  auto add = [&names](std::string_view name) {
    Value& value = names.items.emplace_back();
    value.kind = Kind::String, value.text = Text(name);
  };
  if (const Value* mapping = discriminator.find("mapping"))
    for (size_t i = 0; i < mapping->keys.size(); i++) {
      if (!mapping->items[i].is(Kind::String)) continue;
      std::string_view to = mapping->items[i].text;
      Text by_name = Text("#/components/schemas/") << to;
      if (target && (references_.target(schema, to) == target || references_.target(schema, by_name) == target)) add(mapping->keys[i]);
    }
  std::string_view text = reference->text;
  if (names.items.empty()) add(text.substr(text.rfind('/') + 1));
  return names;
}

}  // namespace aici::schema
