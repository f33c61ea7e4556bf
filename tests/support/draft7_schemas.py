"""Random draft-07 schemas of more kinds than `random_schemas`: other numbers and patterns, formats, recursion."""

from typing import Any

from hypothesis import strategies as st

from tests.support.random_schemas import VALUES

_KEYS = st.sampled_from(["a", "b", "ab", "id", "x_1", "ü", 'q"', "a/b~", ""])
_NUMBERS = st.one_of(
    st.integers(-120, 1200), st.sampled_from([0.1, -0.5, 2.75, 1e3, 1e-3, -99.995, 10**20, 0.30000000000000004])
)
_COUNTS = st.integers(0, 4)
_PATTERNS = st.sampled_from(
    [
        "^[a-z]+$",
        r"\d",
        "^x_",
        "b|ü",
        "^(a|ab)*$",
        r"^\S{1,3}$",
        "^$",
        "[^a]",
        "_1$",
        r"^[A-Z]{2}-\d{3}$",
        "^.?$",
        "a.c",
    ]
)
_FORMATS = st.sampled_from(["date", "ipv4", "ipv6"])


def _some(kind: str, **keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=keywords)


_BOUNDS = {
    "minimum": _NUMBERS,
    "maximum": _NUMBERS,
    "exclusiveMinimum": _NUMBERS,
    "exclusiveMaximum": _NUMBERS,
}
_LEAVES = st.one_of(
    st.sampled_from([{}, {"type": "null"}, {"type": "boolean"}, True, {"type": ["string", "null"]}]),
    _some("integer", multipleOf=st.sampled_from([1, 2, 3, 7, 10, 2.5]), **_BOUNDS),
    _some("number", multipleOf=st.sampled_from([0.5, 0.25, 1, 5]), **_BOUNDS),
    _some("string", minLength=_COUNTS, maxLength=st.integers(0, 9), pattern=_PATTERNS),
    _some("string", format=_FORMATS),
    st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=4)),
    st.builds(lambda value: {"const": value}, VALUES),
    st.sampled_from([{"$ref": "#/definitions/one"}, {"$ref": "#/definitions/two"}]),
)


def _composite(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(_KEYS, inner, max_size=4)
    names = st.lists(_KEYS, max_size=3, unique=True)
    arrays = _some(
        "array",
        items=st.one_of(inner, several),
        additionalItems=inner,
        minItems=_COUNTS,
        maxItems=_COUNTS,
        contains=inner,
    )
    objects = _some(
        "object",
        properties=named,
        required=names,
        additionalProperties=inner,
        patternProperties=st.dictionaries(_PATTERNS, inner, max_size=2),
        propertyNames=_some("string", minLength=_COUNTS, maxLength=_COUNTS, pattern=_PATTERNS),
        minProperties=_COUNTS,
        maxProperties=_COUNTS,
        dependencies=st.dictionaries(_KEYS, st.one_of(names, inner), max_size=2),
    )
    combined = st.one_of(
        st.fixed_dictionaries({"anyOf": several}),
        st.fixed_dictionaries({"oneOf": several}),
        st.fixed_dictionaries({"allOf": several}),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"if": inner, "then": inner}, optional={"else": inner}),
    )
    both = st.builds(lambda x, y: {**x, **y}, st.one_of(arrays, objects), combined)
    return st.one_of(arrays, objects, objects, combined, both)


_SCHEMAS = st.recursive(_LEAVES, _composite, max_leaves=6)


def _whole(schema: Any, one: Any, two: Any) -> Any:
    return {**schema, "definitions": {"one": one, "two": two}} if isinstance(schema, dict) else schema


def _refers_at_once(schema: Any) -> set[str]:
    """Return the definitions that `schema` applies to the same value as `schema` itself: no property or item in
    between."""
    if isinstance(schema, list):
        return set().union(*map(_refers_at_once, schema))
    if not isinstance(schema, dict):
        return set()
    parts = [schema.get(keyword) for keyword in ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")]
    parts += schema.get("dependencies", {}).values()
    return set().union(*map(_refers_at_once, parts)) | ({schema["$ref"]} if "$ref" in schema else set())


def _ends(schema: Any) -> bool:
    """False if a definition applies itself to the same value again: validators do not terminate on such a schema."""
    if not isinstance(schema, dict):
        return True
    one, two = (_refers_at_once(schema["definitions"][name]) for name in ("one", "two"))
    return "#/definitions/one" not in one and "#/definitions/two" not in two and not (one and two)


SCHEMAS = st.builds(_whole, _SCHEMAS, _SCHEMAS, _SCHEMAS).filter(_ends)
