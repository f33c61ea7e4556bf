"""Random documents that mostly fit a schema of any draft, and documents with one change. Validators say which are
valid."""

import random
from decimal import Decimal
from typing import Any

from tests.real_schemas.resolver import Resolver
from tests.real_schemas.sampled_strings import NoStringError, sampled_string

_ANY = (None, True, 0, 1, -7, 2.5, "text", "", [], {}, [1], {"a": 1})
_MAX_DEPTH = 9
_KEYWORDS_OF = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties", "propertyNames"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "string": ("pattern", "format", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


class NoDocumentError(Exception):
    """No document was found on this path."""


class Sampler:
    def __init__(self, resolver: Resolver, rng: random.Random) -> None:
        self._resolver = resolver
        self._rng = rng

    def document(self, schema: Any, depth: int = 0) -> Any:
        """Return a document that probably fits. Raise NoDocumentError where the schema leaves nothing or never ends."""
        if depth > 2 * _MAX_DEPTH:
            raise NoDocumentError
        schema = self._flat(schema, 0)
        if schema is False:
            raise NoDocumentError
        if "const" in schema:
            return schema["const"]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self._rng.choice(schema["enum"])
        if schema.get("nullable") is True and self._rng.random() < 0.2:
            return None
        match self._type(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                try:
                    return sampled_string(schema, self._rng)
                except NoStringError as error:
                    raise NoDocumentError from error
            case "integer" | "number" as kind:
                return self._number(schema, kind)
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
        return self._rng.choice(_ANY)

    def _type(self, schema: dict[str, Any]) -> str:
        kinds = schema.get("type")
        if isinstance(kinds, list) and kinds:
            kinds = self._rng.choice(kinds)
        if isinstance(kinds, str):
            return kinds
        return next((kind for kind, words in _KEYWORDS_OF.items() if any(word in schema for word in words)), "any")

    def _flat(self, schema: Any, hops: int) -> Any:
        """Return a schema without references, `allOf`, `anyOf` and `oneOf`: a random alternative is chosen."""
        if schema is True or schema is None or not isinstance(schema, dict | bool):
            return {}
        if schema is False or hops > 40:
            return False
        parts: list[Any] = []
        if isinstance(schema.get("$ref"), str):
            parts.append(self._resolver.target(schema["$ref"], schema))
        parts += schema.get("allOf") or []
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                parts.append(self._rng.choice(schema[key]))
        if isinstance(schema.get("then"), dict) and self._rng.random() < 0.5:
            parts += [schema["if"], schema["then"]] if "if" in schema else []
        elif isinstance(schema.get("else"), dict):
            parts.append(schema["else"])
        flat = {key: value for key, value in schema.items() if key not in ("$ref", "allOf", "anyOf", "oneOf")}
        for part in parts:
            inner = self._flat(part, hops + 1)
            if inner is False:
                return False
            flat = _merged(flat, inner)
        return flat

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        named = schema.get("properties") or {}
        required = schema["required"] if isinstance(schema.get("required"), list) else []
        required = [
            *required,
            *(name for name, one in named.items() if isinstance(one, dict) and one.get("required") is True),
        ]
        share = self._rng.choice([0.0, 0.15, 0.5, 0.9]) * (depth < 4) if len(named) < 40 else 0.1 * (depth < 3)
        chosen = {name for name in named if name in required or self._rng.random() < share}
        value: dict[str, Any] = {}
        for name in [*(name for name in named if name in chosen), *(name for name in required if name not in named)]:
            try:
                value[name] = self.document(named.get(name, self._unnamed(schema, name)), depth + 1)
            except NoDocumentError:
                if name in required:
                    raise
        for pattern, inner in (schema.get("patternProperties") or {}).items():
            if self._rng.random() < 0.5 and depth < _MAX_DEPTH:
                self._add(value, {"pattern": pattern}, inner, depth)
        more = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
        if isinstance(more, dict) and depth < _MAX_DEPTH:
            for _ in range(max(self._rng.randint(0, 2), schema.get("minProperties", 0) - len(value))):
                self._add(value, schema.get("propertyNames") or {}, more, depth)
        return value

    def _add(self, value: dict[str, Any], names: Any, inner: Any, depth: int) -> None:
        try:
            name = self.document({"type": "string"} | (names if isinstance(names, dict) else {}), depth + 1)
            if isinstance(name, str):
                value.setdefault(name, self.document(inner, depth + 1))
        except NoDocumentError:
            return

    def _unnamed(self, schema: dict[str, Any], name: str) -> Any:
        return schema.get("additionalProperties", True)

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        items = schema.get("items", True)
        first = items if isinstance(items, list) else schema.get("prefixItems") or []
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        low, high = schema.get("minItems", 0), schema.get("maxItems", 10**9)
        num = min(high, max(low, self._rng.choice([0, 1, len(first), len(first) + 2]) if depth < _MAX_DEPTH else low))
        value: list[Any] = []
        for _ in range(4 * num + 4):
            if len(value) >= num:
                break
            try:
                one = self.document(first[len(value)] if len(value) < len(first) else rest, depth + 1)
            except NoDocumentError:
                if len(value) < low:
                    raise
                break
            if not schema.get("uniqueItems") or one not in value:
                value.append(one)
        return value

    def _number(self, schema: dict[str, Any], kind: str) -> int | float:
        low, high = schema.get("minimum"), schema.get("maximum")
        if isinstance(schema.get("exclusiveMinimum"), int | float) and schema["exclusiveMinimum"] is not True:
            low = schema["exclusiveMinimum"] + 1
        if isinstance(schema.get("exclusiveMaximum"), int | float) and schema["exclusiveMaximum"] is not True:
            high = schema["exclusiveMaximum"] - 1
        low = (high - 100 if high is not None else -3) if low is None else low
        high = min(low + 1000, 10**12 if high is None else high)
        step = schema.get("multipleOf")
        if isinstance(step, int | float) and step > 0:
            exact = Decimal(str(step)) * self._rng.randint(
                int(low // step) + (low % step != 0), max(int(high // step), 0)
            )
            return int(exact) if exact == int(exact) else float(exact)
        if kind == "integer":
            return self._rng.choice([int(low), int(high), self._rng.randint(int(low), max(int(low), int(high)))])
        return self._rng.choice([low, high, round(self._rng.uniform(low, high), 2)])


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that probably means both: properties and `required` of both, and else the second's keywords."""
    out = first | second
    for key in ("properties", "patternProperties"):
        if isinstance(first.get(key), dict) and isinstance(second.get(key), dict):
            both = first[key].keys() & second[key].keys()
            met = {name: {"allOf": [first[key][name], second[key][name]]} for name in both}
            out[key] = first[key] | second[key] | met
    if isinstance(first.get("required"), list) and isinstance(second.get("required"), list):
        out["required"] = [*first["required"], *(name for name in second["required"] if name not in first["required"])]
    if isinstance(first.get("enum"), list) and isinstance(second.get("enum"), list):
        out["enum"] = [value for value in first["enum"] if value in second["enum"]] or first["enum"]
    return out


def changed(value: Any, rng: random.Random) -> Any:
    """Return a document with one random change."""
    if isinstance(value, dict) and value and rng.random() < 0.75:
        key = rng.choice(list(value))
        match rng.choice(["inside", "inside", "drop", "add", "rename"]):
            case "drop":
                return {other: inner for other, inner in value.items() if other != key}
            case "add":
                return value | {"unnamedKey": rng.choice(_ANY)}
            case "rename":
                return {other + "x" if other == key else other: inner for other, inner in value.items()}
        return value | {key: changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.75:
        at = rng.randrange(len(value))
        match rng.choice(["inside", "inside", "drop", "double"]):
            case "drop":
                return value[:at] + value[at + 1 :]
            case "double":
                return [*value, value[at]]
        return [*value[:at], changed(value[at], rng), *value[at + 1 :]]
    if isinstance(value, str) and value and rng.random() < 0.6:
        at = rng.randrange(len(value))
        return value[:at] + rng.choice(["", "A", "1", " ", "é", "-"]) + value[at + 1 :]
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.6:
        return value + rng.choice([1, -1, 0.5, 1000, -1000])
    return rng.choice(_ANY)
