#include "aici/schema/references.hpp"

namespace aici::schema {

#define SIMPLE R"("null", "boolean", "integer", "number", "string", "array", "object")"

const std::string_view META_SCHEMA = R"json({
  "definitions": {
    "text": {"type": "string"}, "flag": {"type": "boolean"}, "count": {"type": "integer", "minimum": 0},
    "texts": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
    "simple": {"enum": [)json" SIMPLE R"json(]},
    "list": {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    "map": {"type": "object", "additionalProperties": {"$ref": "#"}}
  },
  "type": ["object", "boolean"],
  "properties": {
    "$schema": {"$ref": "#/definitions/text"}, "$id": {"$ref": "#/definitions/text"}, "id": {"$ref": "#/definitions/text"},
    "$ref": {"$ref": "#/definitions/text"}, "$anchor": {"$ref": "#/definitions/text"}, "$comment": {"$ref": "#/definitions/text"},
    "title": {"$ref": "#/definitions/text"}, "description": {"$ref": "#/definitions/text"},
    "default": true, "examples": {"type": "array"}, "deprecated": {"$ref": "#/definitions/flag"},
    "readOnly": {"$ref": "#/definitions/flag"}, "writeOnly": {"$ref": "#/definitions/flag"},
    "type": {"anyOf": [{"$ref": "#/definitions/simple"},
                       {"type": "array", "items": {"$ref": "#/definitions/simple"}, "minItems": 1, "uniqueItems": true}]},
    "enum": {"type": "array"}, "const": true,
    "multipleOf": {"type": "number", "exclusiveMinimum": 0}, "minimum": {"type": "number"}, "maximum": {"type": "number"},
    "exclusiveMinimum": {"type": ["number", "boolean"]}, "exclusiveMaximum": {"type": ["number", "boolean"]},
    "minLength": {"$ref": "#/definitions/count"}, "maxLength": {"$ref": "#/definitions/count"},
    "pattern": {"$ref": "#/definitions/text"}, "format": {"$ref": "#/definitions/text"},
    "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/definitions/list"}]}, "prefixItems": {"$ref": "#/definitions/list"},
    "additionalItems": {"$ref": "#"}, "unevaluatedItems": {"$ref": "#"}, "contains": {"$ref": "#"},
    "minItems": {"$ref": "#/definitions/count"}, "maxItems": {"$ref": "#/definitions/count"},
    "minContains": {"$ref": "#/definitions/count"}, "maxContains": {"$ref": "#/definitions/count"},
    "uniqueItems": {"$ref": "#/definitions/flag"},
    "properties": {"$ref": "#/definitions/map"}, "patternProperties": {"$ref": "#/definitions/map"},
    "additionalProperties": {"$ref": "#"}, "unevaluatedProperties": {"$ref": "#"}, "propertyNames": {"$ref": "#"},
    "required": {"$ref": "#/definitions/texts"},
    "minProperties": {"$ref": "#/definitions/count"}, "maxProperties": {"$ref": "#/definitions/count"},
    "dependentRequired": {"type": "object", "additionalProperties": {"$ref": "#/definitions/texts"}},
    "dependentSchemas": {"$ref": "#/definitions/map"},
    "dependencies": {"type": "object", "additionalProperties": {"anyOf": [{"$ref": "#"}, {"$ref": "#/definitions/texts"}]}},
    "definitions": {"$ref": "#/definitions/map"}, "$defs": {"$ref": "#/definitions/map"},
    "allOf": {"$ref": "#/definitions/list"}, "anyOf": {"$ref": "#/definitions/list"}, "oneOf": {"$ref": "#/definitions/list"},
    "not": {"$ref": "#"}, "if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": {"$ref": "#"}
  }
})json";

void References::add_meta_schemas() {
  for (const Text& name : meta_schemas_) {
    bool known = false;
    for (const Named& resource : resources_) known |= resource.uri.view() == name.view();
    if (known) continue;
    made_.push_back(std::make_unique<json::Value>());
    json::parse(META_SCHEMA, *made_.back());
    resources_.push_back({Text(name), made_.back().get()});
    walk(*made_.back(), static_cast<uint32_t>(resources_.size() - 1), 1);
  }
}

}  // namespace aici::schema
