"""Small random schemas and values, which often fit together; and the texts of a value in every order of keys."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

_KEYS = ["a", "b", "ab", "ü"]
_STRINGS = ["", "a", "b", "ab", "aab", "ü", 'q"\n', "😀b"]
_NUMBERS: list[Any] = [0, 1, 2, 3, 6, 10, -1, -12, 0.5, 1.5, -0.25, 2.75, 99.125]
_PATTERNS = ["^a", "b$", "a.?b", "^[ab]*$", "ü|q"]
_SCALARS = st.sampled_from([None, True, False, *_NUMBERS, *_STRINGS])

VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from([*_KEYS, "c"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def _some(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keywords)


_SMALL = st.integers(0, 3)
_NUMERIC = _some(
    type=st.sampled_from(["number", "integer", ["integer", "null"]]),
    minimum=st.sampled_from(_NUMBERS),
    maximum=st.sampled_from(_NUMBERS),
    exclusiveMinimum=st.sampled_from(_NUMBERS),
    exclusiveMaximum=st.sampled_from(_NUMBERS),
    multipleOf=st.sampled_from([1, 2, 3, 0.5, 0.25]),
)
_TEXTUAL = _some(type=st.just("string"), minLength=_SMALL, maxLength=_SMALL, pattern=st.sampled_from(_PATTERNS))


def _composite(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    schemas = st.lists(inner, min_size=1, max_size=3)
    by_key = st.dictionaries(st.sampled_from(_KEYS), inner, max_size=3)
    names = st.lists(st.sampled_from(_KEYS), max_size=2, unique=True)
    arrays = _some(
        type=st.just("array"),
        items=inner,
        prefixItems=schemas,
        minItems=_SMALL,
        maxItems=_SMALL,
        contains=inner,
        minContains=_SMALL,
        maxContains=_SMALL,
        unevaluatedItems=inner,
    )
    objects = _some(
        type=st.just("object"),
        properties=by_key,
        required=names,
        additionalProperties=inner,
        patternProperties=st.dictionaries(st.sampled_from(_PATTERNS), inner, max_size=2),
        propertyNames=_TEXTUAL,
        minProperties=_SMALL,
        maxProperties=_SMALL,
        dependentRequired=st.dictionaries(st.sampled_from(_KEYS), names, max_size=1),
        dependentSchemas=st.dictionaries(st.sampled_from(_KEYS), inner, max_size=1),
        unevaluatedProperties=inner,
    )
    combined = _some(
        **{
            "allOf": schemas,
            "anyOf": schemas,
            "oneOf": schemas,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
        }
    )
    both = st.builds(lambda x, y: {**x, **y}, st.one_of(arrays, objects), combined)
    return st.one_of(arrays, objects, combined, both)


_LEAVES = st.one_of(
    st.booleans(),
    _NUMERIC,
    _TEXTUAL,
    st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=3)),
    st.builds(lambda value: {"const": value}, VALUES),
    st.sampled_from([{"type": "null"}, {"type": "boolean"}, {"type": ["string", "array"]}, {"type": "object"}]),
)
SCHEMAS = st.recursive(_LEAVES, _composite, max_leaves=5)


def orders(value: Any) -> Iterator[Any]:
    """Yield `value` with the keys of its objects in every order."""
    if isinstance(value, list):
        for items in itertools.product(*map(orders, value)):
            yield list(items)
    elif isinstance(value, dict):
        for keys in itertools.permutations(value):
            for items in itertools.product(*(orders(value[key]) for key in keys)):
                yield dict(zip(keys, items, strict=True))
    else:
        yield value


def spelled(value: Any) -> list[str]:
    """Return the texts of `value`, a text for every order of keys (the first 1000)."""
    compact = (json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in orders(value))
    return list(dict.fromkeys(itertools.islice(compact, 1000)))
