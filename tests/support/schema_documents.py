"""Documents that mostly fit a schema of `realistic_schemas`; the validator says which documents are valid.

Complements hypothesis-jsonschema, which knows draft 7 and makes small documents.
"""

import datetime
import ipaddress
from typing import Any

from hypothesis import strategies as st

from tests.support.random_schemas import VALUES

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_NUMBERS = st.one_of(st.integers(-1000, 10**9), st.floats(-1e6, 1e6, allow_nan=False), st.sampled_from([0, 1, 2.25]))
_FORMATS = {
    "date": st.dates().map(datetime.date.isoformat),
    "ipv4": st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address).map(str),
}
_ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXT, inner, max_size=3)),
    max_leaves=5,
)


def documents(schema: Any, root: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return documents(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, depth)
    for combined in ("anyOf", "oneOf"):
        if combined in schema:
            return st.one_of([documents(part, root, depth) for part in schema[combined]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    kinds = schema.get("type", "object" if "patternProperties" in schema else [])
    if not kinds:
        return _ANYTHING
    return st.one_of([_typed(kind, schema, root, depth) for kind in ([kinds] if isinstance(kinds, str) else kinds)])


def _typed(kind: str, schema: Any, root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if kind == "integer":
        step = schema.get("multipleOf", 1)
        least, most = (None if end is None else -(-end // step) for end in (low, high))
        return st.integers(least, most if most is None or most * step <= high else most - 1).map(lambda n: n * step)
    if kind == "number":
        return st.one_of(_NUMBERS, st.floats(low, high, allow_nan=False, allow_infinity=False, width=32))
    if kind == "string":
        if "pattern" in schema:
            return st.from_regex(schema["pattern"].replace("$", r"\Z"))
        return _FORMATS.get(schema.get("format", ""), _TEXT)
    if kind == "array":
        first = [documents(part, root, depth + 1) for part in schema.get("prefixItems", [])]
        rest = st.lists(documents(schema.get("items", {}), root, depth + 1), max_size=3)
        return st.tuples(st.tuples(*first), rest).map(lambda parts: [*parts[0], *parts[1]])
    if kind == "object":
        return _object(schema, root, depth)
    return {"null": st.none(), "boolean": st.booleans()}[kind]


def _object(schema: Any, root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    properties = schema.get("properties", {})
    needed = schema.get("required", [])
    names = [name for name in properties if name in needed or depth < 4]  # schemas recur
    parts = {name: documents(properties[name], root, depth + 1) for name in names}
    required = {name: parts.pop(name) for name in needed}
    fixed = st.fixed_dictionaries(required, optional=parts)
    others = [
        st.dictionaries(_matching(pattern), documents(inner, root, depth + 1), max_size=2)
        for pattern, inner in schema.get("patternProperties", {}).items()
    ]
    if isinstance(schema.get("additionalProperties"), dict):
        others.append(st.dictionaries(_TEXT, documents(schema["additionalProperties"], root, depth + 1), max_size=2))
    return st.tuples(fixed, *others).map(lambda dicts: {key: part[key] for part in reversed(dicts) for key in part})


def _matching(pattern: str) -> st.SearchStrategy[str]:
    """Draw keys that match ^prefix or suffix$."""
    return _TEXT.map(lambda text: pattern[1:] + text if pattern[0] == "^" else text + pattern[:-1])


def mutated(value: Any, data: st.DataObject) -> Any:
    """Return `value` with one random change."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 2)):
        key = data.draw(st.sampled_from(sorted(value)))
        change = data.draw(st.sampled_from(["inside", "inside", "drop", "add"]))
        if change == "drop":
            return {other: value[other] for other in value if other != key}
        return {**value, "extra": 1} if change == "add" else {**value, key: mutated(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.integers(0, 2)):
        at = data.draw(st.integers(0, len(value) - 1))
        change = data.draw(st.sampled_from(["inside", "inside", "drop", "double"]))
        if change == "drop":
            return value[:at] + value[at + 1 :]
        return value + value[at:] if change == "double" else [*value[:at], mutated(value[at], data), *value[at + 1 :]]
    if isinstance(value, str) and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(value)))
        return value[:at] + data.draw(st.sampled_from(["", "A", "1", '"', "\n", "é"])) + value[at + 1 :]
    if isinstance(value, int | float) and not isinstance(value, bool) and data.draw(st.booleans()):
        return value + data.draw(st.sampled_from([1, -1, 0.5, 1000, -7]))
    return data.draw(VALUES)
