"""Documents written with keys in the order in which a schema declares them."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.real_schemas.resolver import Resolver


@dataclass(frozen=True, slots=True)
class Written:
    """`text`: the document. `has_unnamed`: an object has a key of which the schema says nothing, although the schema
    names keys."""

    text: str
    has_unnamed: bool


class DeclaredOrder:
    def __init__(self, schema: Any, resolver: Resolver) -> None:
        self._schema = schema
        self._resolver = resolver
        self._has_unnamed = False

    def written(self, document: Any) -> Written:
        self._has_unnamed = False
        text = self._text(document, [self._schema])
        return Written(text, self._has_unnamed)

    def _text(self, value: Any, schemas: list[Any]) -> str:
        if not isinstance(value, dict | list):
            return plain(value)
        parts = [part for schema in schemas for part in self._parts(schema, 0)]
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

    def _parts(self, schema: Any, hops: int) -> Iterator[dict[str, Any]]:
        """Yield the schemas that speak of the same value, in the order of the document."""
        if not isinstance(schema, dict) or hops > 30:
            return
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield from self._parts(self._resolver.target(value, schema), hops + 1)
            elif key in ("allOf", "anyOf", "oneOf") and isinstance(value, list):
                for part in value:
                    yield from self._parts(part, hops + 1)
            elif key in ("if", "then", "else"):
                yield from self._parts(value, hops + 1)
            elif key in ("dependentSchemas", "dependencies") and isinstance(value, dict):
                for part in value.values():
                    yield from self._parts(part, hops + 1)
            elif key == "properties":
                yield schema
        if "properties" not in schema:
            yield schema


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
