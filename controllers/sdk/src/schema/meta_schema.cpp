#include "aici/schema/references.hpp"

namespace aici::schema {

// One schema for all drafts. The definitions have the names of the drafts, since a `$ref` may point to them. Unknown
// keywords are annotations, so a schema may have any.
#define SIMPLE R"("null", "boolean", "integer", "number", "string", "array", "object")"

const std::string_view META_SCHEMA = R"json({
  "definitions": {
    "text": {"type": "string"}, "flag": {"type": "boolean"}, "map": {"type": "object", "additionalProperties": {"$ref": "#"}},
    "simpleTypes": {"enum": [)json" SIMPLE R"json(]},
    "nonNegativeInteger": {"type": "integer", "minimum": 0}, "nonNegativeIntegerDefault0": {"$ref": "#/definitions/nonNegativeInteger"},
    "positiveInteger": {"$ref": "#/definitions/nonNegativeInteger"}, "positiveIntegerDefault0": {"$ref": "#/definitions/nonNegativeInteger"},
    "stringArray": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
    "schemaArray": {"type": "array", "items": {"$ref": "#"}, "minItems": 1}
  },
  "$defs": {
    "simpleTypes": {"$ref": "#/definitions/simpleTypes"}, "nonNegativeInteger": {"$ref": "#/definitions/nonNegativeInteger"},
    "nonNegativeIntegerDefault0": {"$ref": "#/definitions/nonNegativeInteger"}, "stringArray": {"$ref": "#/definitions/stringArray"},
    "schemaArray": {"$ref": "#/definitions/schemaArray"}
  },
  "type": ["object", "boolean"],
  "properties": {
    "$schema": {"$ref": "#/definitions/text"}, "$id": {"$ref": "#/definitions/text"}, "id": {"$ref": "#/definitions/text"},
    "$ref": {"$ref": "#/definitions/text"}, "$anchor": {"$ref": "#/definitions/text"}, "$comment": {"$ref": "#/definitions/text"},
    "title": {"$ref": "#/definitions/text"}, "description": {"$ref": "#/definitions/text"},
    "default": true, "examples": {"type": "array"}, "deprecated": {"$ref": "#/definitions/flag"},
    "readOnly": {"$ref": "#/definitions/flag"}, "writeOnly": {"$ref": "#/definitions/flag"},
    "type": {"anyOf": [{"$ref": "#/definitions/simpleTypes"},
                       {"type": "array", "items": {"$ref": "#/definitions/simpleTypes"}, "minItems": 1, "uniqueItems": true}]},
    "enum": {"type": "array"}, "const": true,
    "multipleOf": {"type": "number", "exclusiveMinimum": 0}, "minimum": {"type": "number"}, "maximum": {"type": "number"},
    "exclusiveMinimum": {"type": ["number", "boolean"]}, "exclusiveMaximum": {"type": ["number", "boolean"]},
    "minLength": {"$ref": "#/definitions/nonNegativeInteger"}, "maxLength": {"$ref": "#/definitions/nonNegativeInteger"},
    "pattern": {"$ref": "#/definitions/text"}, "format": {"$ref": "#/definitions/text"},
    "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/definitions/schemaArray"}]}, "prefixItems": {"$ref": "#/definitions/schemaArray"},
    "additionalItems": {"$ref": "#"}, "unevaluatedItems": {"$ref": "#"}, "contains": {"$ref": "#"},
    "minItems": {"$ref": "#/definitions/nonNegativeInteger"}, "maxItems": {"$ref": "#/definitions/nonNegativeInteger"},
    "minContains": {"$ref": "#/definitions/nonNegativeInteger"}, "maxContains": {"$ref": "#/definitions/nonNegativeInteger"},
    "uniqueItems": {"$ref": "#/definitions/flag"},
    "properties": {"$ref": "#/definitions/map"}, "patternProperties": {"$ref": "#/definitions/map"},
    "additionalProperties": {"$ref": "#"}, "unevaluatedProperties": {"$ref": "#"}, "propertyNames": {"$ref": "#"},
    "required": {"$ref": "#/definitions/stringArray"},
    "minProperties": {"$ref": "#/definitions/nonNegativeInteger"}, "maxProperties": {"$ref": "#/definitions/nonNegativeInteger"},
    "dependentRequired": {"type": "object", "additionalProperties": {"$ref": "#/definitions/stringArray"}},
    "dependentSchemas": {"$ref": "#/definitions/map"},
    "dependencies": {"type": "object", "additionalProperties": {"anyOf": [{"$ref": "#"}, {"$ref": "#/definitions/stringArray"}]}},
    "definitions": {"$ref": "#/definitions/map"}, "$defs": {"$ref": "#/definitions/map"},
    "allOf": {"$ref": "#/definitions/schemaArray"}, "anyOf": {"$ref": "#/definitions/schemaArray"}, "oneOf": {"$ref": "#/definitions/schemaArray"},
    "not": {"$ref": "#"}, "if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": {"$ref": "#"}
  },
  "additionalProperties": true
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
