"""Requests that share steps, pages and a runtime have the same results as alone: random mixes of all features."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import Event, FinishEvent, ScoreEvent, TokenEvent
from aici_engine.request import ControllerCall, Request, RequestHandle
from aici_engine.speculation.model_speculator import ModelSpeculator
from aici_engine.speculation.pass_times import PassTimes
from aici_runtime.wire import Pre, Splice
from tests.engine.programs import Program, Told, by_fork
from tests.engine.support import ScriptedRuntime, write_tiny_model

_LATE = Pre(suspend=True, num_forks=1, ff_tokens=(), late=True)
_NEVER = 10**9
_FORK = ("fork", [[("any", 3), ("set", "x", "")], [("wait", "x"), ("say", "b")], [("back", 4, "é"), ("any", 9)]])
_STEPS: list[tuple[Any, ...]] = [
    *(("any", num) for num in (1, 3, 9, 14)),
    *((kind, text) for kind in ("say", "force", "log") for text in ("ab", "é c")),
    *(("back", num, text) for num in (1, 4, 12) for text in ("", "Qé", "aba")),
    ("idle", 2),
]


class Slow(Program):
    """`argument`: the program, the probability of a late answer, and the seed of the random choices."""

    def init_prompt(self, prompt: list[Any]) -> None:
        self.argument, self.how_likely, seed = self.argument
        self.chance = random.Random(seed)
        super().init_prompt(prompt)

    def pre(self) -> Any:
        waits = self.steps[:1] and self.steps[0][0] == "wait"  # a late guest would hide a deadlock
        return _LATE if self._is_late() and not waits else super().pre()

    def mid(self) -> Any:
        forks = self.steps[:1] and self.steps[0][0] == "fork"
        return Splice(1, (), late=True) if self._is_late() and not forks else super().mid()

    def _is_late(self) -> bool:
        return self.chance.random() < self.how_likely


def _requests(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Draw the fields of a Request, and a controller's program, which may be late."""
    begins = ["".join(chance.choices("abc Qé", k=chance.randint(1, 20))) for _ in range(2)]
    for _ in range(10):
        prompt = chance.choice(begins)[: chance.randint(0, 30)] + chance.choice("abc")
        sampling: dict[str, Any] = {
            "temperature": chance.choice([0.0, 1.0]),
            "seed": chance.randint(0, 5),
            "max_tokens": chance.choice([0, 1, 2, 60, 60, 60]),
            "stop": chance.choice([(), (), (), ("é",), ("aa", "b a")]),
            "logprobs": chance.choice([None, 2]),
            "frequency_penalty": chance.choice([0.0, 0.5]),
        }
        more: dict[str, Any] = {"priority": chance.choice([0, 0, -2, 3]), "cache_salt": chance.choice([None, "s"])}
        if chance.random() < 0.6:
            more["program"] = chance.choices(_STEPS, k=chance.randint(2, 6)) + chance.choice([[], [_FORK]])
        elif chance.random() < 0.5:
            more["score_from"] = chance.randrange(len(prompt))
        else:
            sampling["ignore_eos"] = True
        yield {"prompt": prompt, "sampling": SamplingParams(**sampling), **more}


def _submit(engine: Engine, how_late: float, seed: int, *, program: Any = None, **request: Any) -> RequestHandle:
    call = None if program is None else ControllerCall("slow", (program, how_late, seed))
    return engine.submit(Request(controller=call, **request))


def _told(events: list[Event]) -> list[Any]:
    return [_all_of(fork) for fork in by_fork(events).values()]


def _all_of(fork: Told) -> list[Any]:
    """Return the results without times; numbers to a few digits, because sums of torch differ."""
    assert fork.end is not None
    scores = [score for event in fork.events if isinstance(event, ScoreEvent) for score in event.scores]
    tokens = [event.token for event in fork.events if isinstance(event, TokenEvent)]
    close = [pytest.approx(each.logprob or 0.0, abs=1e-3) for each in (*scores, *tokens)]
    return [fork.stream, fork.end.text, fork.end.reason, fork.end.logs, [token[:3] for token in tokens], close]


@pytest.mark.parametrize("seed", [3, 6, 10, 15])
def test_together_as_alone(tiny_model: Path, seed: int) -> None:
    chance = random.Random(seed)
    requests = list(_requests(chance))
    alone = EngineConfig(model_dir=tiny_model, num_pages=600, page_size=4, prefix_cache=False, calm_rounds=_NEVER)
    with Engine(alone, runtime=ScriptedRuntime({"slow": Slow})) as engine:
        wanted = [list(_submit(engine, 0.0, 0, **request).events()) for request in requests]
    max_num_seqs = chance.randint(4, 8)
    together = EngineConfig(
        model_dir=tiny_model, num_pages=chance.randint(24, 27), page_size=4, max_num_seqs=max_num_seqs,
        max_batch_tokens=max_num_seqs + chance.choice([1, 8, 100]), calm_rounds=chance.choice([1, 2]),
    )  # fmt: skip
    wrong: list[AssertionError] = []

    def look() -> None:
        try:
            engine._components.cache.check_integrity()
        except AssertionError as error:
            wrong.append(error)

    how_late = chance.choice([0.0, 0.3])
    with Engine(together, runtime=ScriptedRuntime({"slow": Slow}), on_step=look) as engine:
        handles = [_submit(engine, how_late, seed, **request) for request in requests]
        leaver = _submit(engine, how_late, seed, **requests[0] | {"sampling": SamplingParams()})
        next(leaver.events())
        leaver.abort()
        for handle, events in zip(handles, wanted, strict=True):
            assert _told(list(handle.events())) == _told(events)
        assert isinstance(leaver.wait(), FinishEvent)
    assert wrong == []


@pytest.fixture(scope="module")
def kernels_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("kernels"), num_heads=2)


@pytest.mark.one_process
@pytest.mark.parametrize("drafter", ["ngram", "model", "both"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_drafts_as_without(kernels_model: Path, seed: int, drafter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pages and late guests beside drafts of any quality. Masks make the last requests repeat their prompts."""
    if drafter != "ngram":  # the draft model of a tiny model is not faster
        monkeypatch.setattr(ModelSpeculator, "_draft_s", lambda *_: 0.0)
        monkeypatch.setattr(PassTimes, "expected_s", lambda *_: 1.0)
    chance = random.Random(seed)
    requests = list(_requests(chance))
    for end in ([], [("back", 4, "é"), ("any", 3)], [_FORK], [("force", "abcabd"), ("say", "abc")]):
        program = [("say", "abcabcabcabc"), ("any", 2), ("say", "abcabcabc"), *end]
        requests.append({"prompt": "abcabcabcabc", "sampling": SamplingParams(seed=seed), "program": program})
    alone = EngineConfig(model_dir=kernels_model, num_pages=200, page_size=16, prefix_cache=False, calm_rounds=_NEVER)
    with Engine(replace(alone, speculate="off"), runtime=ScriptedRuntime({"slow": Slow})) as engine:
        wanted = [list(_submit(engine, 0.0, 0, **request).events()) for request in requests]
    together = EngineConfig(
        model_dir=kernels_model, num_pages=chance.randint(8, 12), page_size=16, max_num_seqs=chance.randint(2, 8),
        max_batch_tokens=64, calm_rounds=chance.choice([1, 2]), speculate="off" if drafter == "model" else "ngram",
        draft_model=None if drafter == "ngram" else kernels_model, draft_dtype=None if drafter == "ngram" else "int4",
    )  # fmt: skip
    how_late = chance.choice([0.0, 0.3])
    with Engine(together, runtime=ScriptedRuntime({"slow": Slow})) as engine:
        for at_once in (1, len(requests)):
            for first in range(0, len(requests), at_once):
                some = requests[first : first + at_once]
                handles = [_submit(engine, how_late, seed, **request) for request in some]
                for handle, events in zip(handles, wanted[first:], strict=False):
                    assert _told(list(handle.events())) == _told(events)
        engine._components.cache.check_integrity()
        assert engine.get_stats()["cache_usage"] == 0.0
        assert engine.get_stats()["accepted_tokens"] > 0
