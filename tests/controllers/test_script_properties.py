"""Random programs in all three languages: the guests behave as a simulator of the semantics."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_controllers import catalog
from aici_controllers.byte_tokenizer import write_byte_tokenizer
from aici_runtime.client import Runtime, RuntimeConfig
from tests.support.guests import shipped_guest
from tests.support.scale import scaled
from tests.support.scripts import printers
from tests.support.scripts.engine import ScriptEngine
from tests.support.scripts.model import WORDS
from tests.support.scripts.nodes import Fixed, Gen, Letters, Step, Steps, Words
from tests.support.scripts.programs import programs
from tests.support.scripts.simulator import simulate

Engines = Callable[[str], ScriptEngine]

_SEEDS = st.integers(0, 99)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    shipped_guest("declctrl")
    tokenizer = write_byte_tokenizer(tmp_path_factory.mktemp("bytes"), WORDS)
    with ExitStack() as stack:
        config = RuntimeConfig(tokenizer=tokenizer, json_size_mib=16, max_init_time_ms=5000)
        runtime = stack.enter_context(Runtime(config))
        runtime.wait_ready()
        ready: dict[str, ScriptEngine] = {}

        def engine(guest: str) -> ScriptEngine:
            if guest not in ready:
                module = runtime.mk_module(catalog.guest_path(guest).read_bytes())
                ready[guest] = ScriptEngine(runtime, module.module_id)
            return ready[guest]

        yield engine


def _check(engine: ScriptEngine, source: str, program: Steps, why: str, seed: int = 0) -> None:
    outcome, errors = engine.run(source, seed)
    expected = simulate(program)
    if outcome.variables is None:
        expected = replace(expected, variables=None)
    assert outcome == expected, f"{source}\n{errors}"
    assert all(re.search(why, error) for error in errors), errors


@settings(max_examples=scaled(120), deadline=None)
@given(program=programs(is_script=False), seed=_SEEDS)
def test_declarative_steps(engines: Engines, program: list[Step], seed: int) -> None:
    _check(engines("declctrl"), printers.declarative(program), program, "must stay|must be at least one choice", seed)


@settings(max_examples=scaled(60), deadline=None)
@given(program=programs(is_script=True), seed=_SEEDS)
def test_javascript(engines: Engines, program: list[Step], seed: int) -> None:
    _check(engines("jsctrl"), printers.javascript(program), program, "boom", seed)


@settings(max_examples=scaled(60), deadline=None)
@given(program=programs(is_script=True), seed=_SEEDS)
def test_python(engines: Engines, program: list[Step], seed: int) -> None:
    _check(engines("pyctrl"), printers.python(program), program, "boom", seed)


def test_text_that_is_too_long_to_be_forced_at_once(engines: Engines) -> None:
    long = [Fixed(text=(letter * 700,), label=letter) for letter in "abcdefgh"]
    program = [*long, Gen(language=Words(("x",), "regex")), Fixed(text=("y",), following="c"), *long[3:]]
    _check(engines("declctrl"), printers.declarative(program), program, "must stay|must be at least one choice")


def test_many_constraints_at_once(engines: Engines) -> None:
    """All programs are generated before the first token."""
    program = [Gen(language=Letters("ab", 1, number + 1), max_tokens=1) for number in range(50)]
    _check(engines("declctrl"), printers.declarative(program), program, "must stay|must be at least one choice")
