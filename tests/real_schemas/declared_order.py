"""Documents written with keys in the order in which a schema declares them."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from jsonschema.protocols import Validator

from tests.real_schemas.resolver import Resolver


@dataclass(frozen=True, slots=True)
class Written:
    """`text`: the document. `has_unnamed`: an object has a key of which the schema says nothing, although the schema
    names keys."""

    text: str
    has_unnamed: bool


class DeclaredOrder:
    """Writes documents of a schema. Of `anyOf` and `oneOf` counts the first alternative that `validator` accepts."""

    def __init__(self, schema: Any, resolver: Resolver, validator: Validator) -> None:
        self._schema = schema
        self._resolver = resolver
        self._validator = validator
        self._has_unnamed = False

    def written(self, document: Any) -> Written:
        self._has_unnamed = False
        text = self._text(document, [self._schema])
        return Written(text, self._has_unnamed)

    def _text(self, value: Any, schemas: list[Any]) -> str:
        if not isinstance(value, dict | list):
            return plain(value)
        parts = [part for schema in schemas for part in self._parts(schema, value, 0)]
        if isinstance(value, list):
            return f"[{','.join(self._text(item, _items(parts, at)) for at, item in enumerate(value))}]"
        order = [name for part in parts for name in part.get("properties") or {}]
        order += [name for part in parts for name in part.get("required") or () if isinstance(part["required"], list)]
        rank = {name: at for at, name in reversed(list(enumerate(order)))}
        pairs = []
        for key in sorted(value, key=lambda key: rank.get(key, len(order))):
            inner = list(_values(parts, key))
            self._has_unnamed |= not inner and any("properties" in part for part in parts)
            pairs.append(f"{json.dumps(key, ensure_ascii=False)}:{self._text(value[key], inner)}")
        return "{" + ",".join(pairs) + "}"

    def _parts(self, schema: Any, value: Any, hops: int) -> Iterator[dict[str, Any]]:
        """Yield the schemas that speak of `value`, in the order of the document."""
        if not isinstance(schema, dict) or hops > 30:
            return
        for key, inner in schema.items():
            if key == "properties":
                yield schema
            for part in self._applied(key, inner, schema, value):
                yield from self._parts(part, value, hops + 1)
        if "properties" not in schema:
            yield schema

    def _applied(self, key: str, inner: Any, schema: dict[str, Any], value: Any) -> list[Any]:
        """Return the schemas that a keyword applies to the same value."""
        if key == "$ref" and isinstance(inner, str):
            return [self._resolver.target(inner, schema)]
        if key == "allOf" and isinstance(inner, list):
            return inner
        if key in ("anyOf", "oneOf") and isinstance(inner, list):
            return [part for part in inner if self._fits(part, value)][:1]
        if key == "if":
            is_met = self._fits(inner, value)
            return ([inner] if is_met else []) + [
                schema[word] for word in ("then" if is_met else "else",) if word in schema
            ]
        if key in ("dependentSchemas", "dependencies") and isinstance(inner, dict):
            return [part for name, part in inner.items() if name in value]
        return []

    def _fits(self, schema: Any, value: Any) -> bool:
        return bool(self._validator.evolve(schema=schema).is_valid(value))


def _values(parts: list[dict[str, Any]], key: str) -> Iterator[Any]:
    """Yield the schemas of a key's value."""
    for part in parts:
        named = (part.get("properties") or {}).get(key)
        found = named is not None
        if found:
            yield named
        for pattern, schema in (part.get("patternProperties") or {}).items():
            if _is_found(pattern, key):
                found = True
                yield schema
        for rest in ("additionalProperties", "unevaluatedProperties"):
            if not found and rest in part:
                yield part[rest]


def _items(parts: list[dict[str, Any]], at: int) -> list[Any]:
    found = []
    for part in parts:
        items = part.get("items")
        first = items if isinstance(items, list) else part.get("prefixItems") or []
        rest = part.get("additionalItems") if isinstance(items, list) else items
        found.append(first[at] if at < len(first) else rest)
        found += [part["contains"]] if "contains" in part else []
    return found


def _is_found(pattern: str, key: str) -> bool:
    try:
        return re.search(pattern, key) is not None
    except re.error:
        return False


def plain(value: Any) -> str:
    """Return a scalar as JSON: numbers without exponent, whole numbers without a point."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else format(Decimal(repr(value)), "f")
    return json.dumps(value, ensure_ascii=False)
