"""Schemas such as people write, and values spelled as the guest `json_schema` spells a value."""

import json
from decimal import Decimal
from typing import Any

_CUSTOMER = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "email": {"type": "string"}, "vip": {"type": "boolean"}},
    "required": ["name", "email"],
    "additionalProperties": False,
}
_LINE = {
    "type": "object",
    "properties": {
        "sku": {"type": "string", "pattern": "^[A-Z]{2,3}-[0-9]+$"},
        "qty": {"type": "integer", "minimum": 1, "maximum": 999},
        "price": {"type": "number", "minimum": 0, "exclusiveMaximum": 1e6},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
    },
    "required": ["sku", "qty", "price"],
    "additionalProperties": False,
}
_TREE = {"$ref": "#/$defs/tree"}

SCHEMAS: dict[str, dict[str, Any]] = {
    "any": {},
    "order": {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "customer": _CUSTOMER,
            "status": {"enum": ["pending", "paid", "shipped", "delivered", "cancelled"]},
            "items": {"type": "array", "minItems": 1, "items": _LINE},
            "note": {"type": ["string", "null"]},
        },
        "required": ["id", "customer", "status", "items"],
        "additionalProperties": False,
    },
    "open": {
        "type": "object",
        "properties": {"kind": {"const": "x"}, "size": {"type": "integer"}},
        "required": ["kind"],
        "additionalProperties": {"type": ["integer", "string"]},
        "maxProperties": 4,
    },
    "patterns": {
        "type": "object",
        "patternProperties": {"^n_": {"type": "integer"}, "_s$": {"type": "string"}},
        "additionalProperties": False,
    },
    "tree": {
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "left": _TREE,
                    "right": {"anyOf": [_TREE, {"type": "null"}]},
                },
                "required": ["value"],
                "additionalProperties": False,
            }
        },
        **_TREE,
    },
    "shapes": {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": "circle"}, "radius": {"type": "number", "exclusiveMinimum": 0}},
                "required": ["kind", "radius"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"kind": {"const": "box"}, "sides": {"type": "array", "items": {"type": "integer"}}},
                "required": ["kind", "sides"],
                "additionalProperties": False,
            },
        ]
    },
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "string", "minLength": 1}, {"type": "number", "minimum": -1.5, "maximum": 2.25}],
        "items": {"type": "boolean"},
        "minItems": 2,
        "maxItems": 5,
    },
    "contains": {
        "type": "array",
        "items": {"type": ["integer", "string"]},
        "contains": {"type": "string"},
        "minContains": 1,
        "maxContains": 2,
        "maxItems": 6,
    },
    "steps": {"type": "array", "items": {"type": "integer", "multipleOf": 7, "minimum": -100, "maximum": 1000}},
    "formats": {
        "type": "object",
        "properties": {"day": {"type": "string", "format": "date"}, "address": {"type": "string", "format": "ipv4"}},
        "required": ["day"],
        "additionalProperties": False,
    },
    "dependent": {
        "type": "object",
        "properties": {"card": {"type": "integer"}, "street": {"type": "string"}},
        "dependentRequired": {"card": ["street"]},
        "additionalProperties": False,
    },
}


def key_order(schema: Any) -> list[str]:
    """Return the names of all `properties`, in the order of the schema."""
    names: list[str] = []
    if isinstance(schema, dict):
        for key, value in schema.items():
            for name, inner in value.items() if key == "properties" else [(None, value)]:
                names += [*([name] if name else []), *key_order(inner)]
    elif isinstance(schema, list):
        for inner in schema:
            names += key_order(inner)
    return list(dict.fromkeys(names))


def spelled(value: Any, order: list[str], *, space: str = "") -> str:
    """Return `value` as text: keys in `order`, then the other keys; numbers without exponents, whole numbers without
    a point."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: order.index(key) if key in order else len(order))
        pairs = (
            f"{json.dumps(key, ensure_ascii=False)}:{space}{spelled(value[key], order, space=space)}" for key in keys
        )
        return "{" + f",{space}".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + f",{space}".join(spelled(item, order, space=space) for item in value) + "]"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else format(Decimal(repr(value)), "f")
    return json.dumps(value, ensure_ascii=False)
