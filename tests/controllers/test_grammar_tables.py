"""Tables of grammars against the canonical LR(1) tables, Earley's algorithm, and outcomes known from yacc."""

import functools
import itertools
import random
from typing import Any

import pytest

from tests.support.guests import build_test_guest
from tests.support.lr_oracle import BuiltTable, CanonicalTable, derives
from tests.support.scale import scaled
from tests.support.small_grammars import TERMINALS, small_grammar
from tests.support.tool_guest import ToolGuest

_BATCH = 100
_TEXTS = ["".join(word) for size in range(6) for word in itertools.product(TERMINALS, repeat=size)]


@functools.cache
def _guest() -> ToolGuest:
    return ToolGuest(build_test_guest("grammar_tables"))


def tables(texts: list[str]) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = _guest().ask({"grammars": texts})
    return answers


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_tables_are_those_of_canonical_lr1(seed: int) -> None:
    """A conflict is reported iff the canonical tables have one, and without conflicts the same is accepted."""
    rng = random.Random(seed)
    grammars = [small_grammar(rng) for _ in range(_BATCH)]
    num_compared = num_smaller = 0
    for grammar, answer in zip(grammars, tables([grammar.text() for grammar in grammars]), strict=True):
        canonical = CanonicalTable(grammar)
        if not canonical.complete:
            continue
        errors = [problem["message"] for problem in answer["problems"] if problem["error"]]
        assert bool(errors) == bool(canonical.conflicts), (grammar.text(), errors)
        if errors:
            assert errors[0].startswith("conflict before"), (grammar.text(), errors)
            continue
        built = BuiltTable(answer["table"])
        num_compared += 1
        num_smaller += built.num_states < len(canonical.states)
        assert built.num_states <= len(canonical.states)
        for text in _TEXTS:
            assert built.accepts(text) == canonical.accepts(text), (grammar.text(), text)
            if not built.settled:
                assert built.accepts(text) == derives(grammar, text), (grammar.text(), text)
    assert num_compared > 20
    assert num_smaller > 1
