"""The constraints whose cost is measured. None of them ends a text, and none forces a token."""

import re
from collections.abc import Callable, Mapping, Sequence

from aici_controllers import constraints
from aici_controllers.catalog import guest_path
from aici_controllers.constraints import Constraint

_ANYTHING = r"(.|\n)*"
_STRINGS = '{"type": "array", "minItems": 100000, "items": {"type": "string"}}'
_SENTENCES = r"""%start text
%%
WORDS: '/[^.!?\n]+/' ;
END: '/[.!?\n]+/' ;

text
    : sentence
    | text sentence
    ;

sentence
    : WORDS END
    ;
"""
_SCRIPT = f"await gen({{ regex: /{_ANYTHING}/, maxTokens: 1000000 }});\n"

Make = Callable[[str], Constraint]
"""Make the constraint for a sequence whose text without a constraint is given."""

KINDS: Mapping[str, Make] = {
    "dense": lambda _: constraints.regex(_ANYTHING),
    "sparse": lambda text: constraints.regex(either_case(text)),
    "schema": lambda _: constraints.json_schema(_STRINGS),
    "grammar": lambda _: constraints.grammar(_SENTENCES, syntax="y"),
    "script": lambda _: constraints.script("jsctrl", _SCRIPT),
}
"""What each kind allows: `dense` nearly all tokens; `sparse` the text in upper and lower case; `schema` JSON strings;
`grammar` sentences; `script` what `dense` allows, asked for by a program in JavaScript."""

ALLOWS_THE_TEXT = frozenset({"dense", "sparse", "script"})
"""Kinds that leave the greedy tokens as they are without a constraint."""


def guests(kinds: Sequence[str]) -> dict[str, bytes]:
    """Return the modules that the kinds need, by name."""
    names = {KINDS[kind]("text").guest for kind in kinds}
    return {name: guest_path(name).read_bytes() for name in names}


def either_case(text: str) -> str:
    """Return a pattern that `text` matches, and that leaves two characters at each place: no guest can force a token.

    >>> either_case("It.")
    '[Ii][tT][\\\\._](.|\\\\n)*'
    """
    return "".join(f"[{re.escape(char)}{re.escape(_other(char))}]" for char in text) + _ANYTHING


def _other(char: str) -> str:
    swapped = char.swapcase()
    return swapped if len(swapped) == 1 and swapped != char else "-" if char == "_" else "_"
