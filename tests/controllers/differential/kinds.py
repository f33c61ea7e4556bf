"""The kinds of differential runs."""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Final, NamedTuple

from tests.controllers.differential import grammars, regexes, schemas
from tests.controllers.differential.findings import Finding, Tool


class Kind(NamedTuple):
    """`guest`: whose tool is asked. `case`: one case, with its own random numbers; counts what it sees."""

    guest: str
    case: Callable[[Tool, Random, Counter[str]], Iterator[Finding]]


KINDS: Final = {
    "whole": Kind("regex", regexes.whole),
    "search": Kind("json_schema", regexes.search),
    "schemas": Kind("json_schema", schemas.random_schema),
    "grammars": Kind("grammar", grammars.random_grammar),
}
