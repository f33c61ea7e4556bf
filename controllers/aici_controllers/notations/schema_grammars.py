"""Grammars inside the strings of a JSON Schema: the keyword `x-aici-grammar` beside `"type": "string"`."""

from typing import Any, Final

from aici_controllers.notations.detect import TITLES
from aici_controllers.notations.json_part import PartError, Path
from aici_controllers.notations.reading import read_notation

KEYWORD: Final = "x-aici-grammar"
_DATA: Final = ("const", "enum", "default", "examples", "example")
"""Keywords whose values are no schemas."""
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose values hold schemas under names of the user's own."""


def with_guest_grammars(schema: Any, path: Path = ()) -> Any:
    """Return the schema with all its grammars in the syntax of the guest `grammar`. `path`: of the schema.

    Raise PartError for a grammar that is wrong or has a lexer.
    """
    if isinstance(schema, list):
        return [with_guest_grammars(item, (*path, at)) for at, item in enumerate(schema)]
    if not isinstance(schema, dict):
        return schema
    changed: dict[str, Any] = {}
    for key, value in schema.items():
        here = (*path, key)
        if key == KEYWORD and isinstance(value, str):
            changed[key] = _guest_text(value, here)
        elif key in _MAPS and isinstance(value, dict):
            changed[key] = {name: with_guest_grammars(each, (*here, name)) for name, each in value.items()}
        else:
            changed[key] = value if key in _DATA else with_guest_grammars(value, here)
    return changed


def _guest_text(text: str, path: Path) -> str:
    reading = read_notation(text)
    if reading.told.syntax == "lark":
        raise PartError(path, f"a grammar in a string is in GBNF, which has no lexer; this is {TITLES['lark']}")
    if reading.error:
        place, message = reading.error
        raise PartError(path, f"line {place.line}, column {place.column}: {message}")
    return reading.guest.text
