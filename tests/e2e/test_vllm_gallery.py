"""The example scripts on the real vLLM and on aici's own engine: guests hear the same tokens, but for near ties.

Run as `test_vllm_engine.py`. With `-s`, every test prints how many changes were equal.
"""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from aici_base.ids import TokenId
from aici_controllers.catalog import SCRIPT_GUESTS, guest_path
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import BacktrackEvent, Event, Origin, TokenEvent
from aici_engine.request import ControllerCall, Request
from aici_runtime.client import Runtime, RuntimeConfig
from tests.e2e.test_vllm_engine import is_near_tie
from tests.engine.programs import Told, by_fork
from tests.support.model import default_model_dir

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif("AICI_TEST_VLLM" not in os.environ, reason="AICI_TEST_VLLM is not set: see test_vllm_engine.py"),
]

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path for path in [*EXAMPLES.iterdir(), *EXAMPLES.glob("best_of_n/*")] if path.suffix in SCRIPT_GUESTS)
SCRIPTS.remove(EXAMPLES / "best_of_n" / "pick.py")  # not a script of a controller


class Change(NamedTuple):
    """A change that a guest hears of. `before`: the tokens before. `removed`: the number of tokens taken back."""

    before: tuple[TokenId, ...]
    origin: Origin | None
    token: TokenId | None = None
    removed: int = 0


View: TypeAlias = dict[tuple[int, ...], list[Change]]
"""The changes of every fork, by lineage."""


@pytest.fixture(scope="module")
def own() -> Iterator[tuple[Engine, Runtime]]:
    """aici's own engine, with the weights and the dtype of vLLM."""
    config = EngineConfig(model_dir=default_model_dir(), dtype="bfloat16", max_context=1024)
    with Runtime(RuntimeConfig(tokenizer=default_model_dir())) as runtime:
        runtime.wait_ready()
        with Engine(config, runtime=runtime) as engine:
            yield engine, runtime


@cache
def model() -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(default_model_dir(), dtype=torch.bfloat16)


def run(engine: Engine, runtime: Runtime, script: Path) -> View:
    module = runtime.mk_module(guest_path(SCRIPT_GUESTS[script.suffix])).module_id
    call = ControllerCall(module, script.read_text())
    params = SamplingParams(temperature=0.0, seed=1)
    forks = by_fork(
        list(engine.submit(Request(prompt=[engine.start_token], sampling=params, controller=call)).events())
    )
    for told in forks.values():
        assert told.end is not None
        assert told.end.error is None, told.end.logs
    heard: View = {}
    for told in forks.values():
        heard[told.lineage] = _changes(told, engine.start_token)
    return heard


def _changes(told: Told, start: TokenId) -> list[Change]:
    first: Event = told.events[0]
    tokens = [start, *(token.token_id for token in getattr(first, "tokens", ()))]
    changes = []
    for event in told.events:
        if isinstance(event, TokenEvent):
            changes.append(Change(tuple(tokens), event.token.origin, event.token.token_id))
            tokens.append(event.token.token_id)
        elif isinstance(event, BacktrackEvent):
            changes.append(Change(tuple(tokens), None, removed=event.num_tokens))
            del tokens[len(tokens) - event.num_tokens :]
    return changes


def first_difference(given: list[Change], wanted: list[Change]) -> int | None:
    pairs = zip(given, wanted, strict=False)
    at = next((k for k, (one, other) in enumerate(pairs) if one != other), min(len(given), len(wanted)))
    return None if at == len(given) == len(wanted) else at


def is_choice_by_rounding(one: Change, other: Change) -> bool:
    """Both were sampled after the same tokens, and the model hardly prefers either."""
    import torch

    if one.before != other.before or {one.origin, other.origin} != {Origin.SAMPLED}:
        return False
    assert one.token is not None
    assert other.token is not None
    with torch.no_grad():
        logits = model()(torch.tensor([one.before])).logits[0, -1].float()
    return is_near_tie(float(logits[one.token]), float(logits[other.token]))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_guests_hear_the_same_tokens(
    engine: Engine, runtime: Runtime, own: tuple[Engine, Runtime], script: Path
) -> None:
    given, wanted = run(engine, runtime, script), run(*own, script)
    differences = {
        lineage: first_difference(given[lineage], wanted[lineage]) for lineage in given.keys() & wanted.keys()
    }
    equal = sum(len(wanted[lineage]) if at is None else at for lineage, at in differences.items())
    print(f"{script.name}: {equal} of {sum(map(len, wanted.values()))} changes are equal")
    found = {lineage: at for lineage, at in differences.items() if at is not None}
    ties = [
        lineage
        for lineage, at in found.items()
        if at < min(len(given[lineage]), len(wanted[lineage]))
        and is_choice_by_rounding(given[lineage][at], wanted[lineage][at])
    ]
    # Forks read the variables of other forks: a near tie in one fork may change the next tokens of all forks.
    assert ties or (not found and given.keys() == wanted.keys()), {
        str(lineage): (given[lineage][at : at + 3], wanted[lineage][at : at + 3]) for lineage, at in found.items()
    }


def test_every_script_is_among_them() -> None:
    assert len(SCRIPTS) == 14
