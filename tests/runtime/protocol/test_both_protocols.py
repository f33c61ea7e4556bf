"""A guest of either ABI sees and does the same under protocol v1, protocol v2 and `turn_process` in both its forms."""

import base64
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.support import scripted
from tests.runtime.support.engines import BinaryTurnEngine, Engine, Sequence, TurnEngine, V1Engine, V2Engine
from tests.runtime.support.raw import RawEngine
from tests.runtime.support.scripted import Answer

CAPABILITIES = ("--cap-fork", "--cap-backtrack", "--cap-ff-tokens", "--bias-dtype=bool")
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def engines(byte_level: Path, cache_dir: Path) -> Iterator[dict[type[Engine], RawEngine]]:
    """Start a runtime for every engine."""
    limits = ("--wasm-max-pre-step-time=5000", "--wasm-max-step-time=5000")
    kinds = (V1Engine, V2Engine, TurnEngine, BinaryTurnEngine)
    raws = {kind: RawEngine(byte_level, cache_dir, *CAPABILITIES, *limits) for kind in kinds}
    try:
        for raw in raws.values():
            for wasm in (scripted.abi_v1(), scripted.abi_v2()):
                assert raw.side(op="mk_module", binary=base64.b64encode(wasm).decode())["type"] == "ok"
        yield raws
    finally:
        for raw in raws.values():
            raw.close()


def play(kind: type[Engine], raw: RawEngine, wasm: bytes, argument: str) -> dict[tuple[int, ...], Sequence]:
    req_id = f"r{next(_numbers)}"
    request = {"req_id": req_id, "prompt": [1], "module_id": hashlib.sha256(wasm).hexdigest(), "module_arg": argument}
    assert raw.side(op="instantiate", **request)["type"] == "ok"
    return kind(raw, next(_numbers) * 1000).run(req_id)


def seen(sequence: Sequence) -> tuple[list[int], str, list[dict[str, Any]]]:
    """Return the parts of an answer that both protocols share. Sequence ids differ."""
    lines = [json.loads(line) for line in sequence.logs.splitlines() if line.startswith("{")]
    for line in lines:
        if "fork_group" in line:
            line["fork_group"] = len(line["fork_group"])
    return sequence.tokens, re.sub(r"[0-9a-fx]{4,}", "", sequence.error), lines


def compare(engines: dict[type[Engine], RawEngine], wasm: bytes, argument: str) -> None:
    doc, *others = (play(kind, raw, wasm, argument) for kind, raw in engines.items())
    for other in others:
        assert {path: seen(sequence) for path, sequence in doc.items()} == {
            path: seen(sequence) for path, sequence in other.items()
        }


tokens = st.integers(1, 30)
words = st.integers(2, 2**31 - 2)


def splice(when_sampled: list[int], backtrack: int, ff_tokens: list[int]) -> dict[str, object]:
    return {"when_sampled": when_sampled, "backtrack": backtrack, "ff_tokens": ff_tokens}


forced = st.builds(splice, st.just([]), st.integers(0, 3), st.lists(tokens, max_size=3))
conditional = st.builds(splice, st.lists(tokens, max_size=6), st.integers(0, 2), st.lists(tokens, max_size=2))


@st.composite
def steps(draw: st.DrawFn) -> Answer:
    """Draw a mid answer with branches."""
    branches, masks = [], []
    for _ in range(draw(st.sampled_from([1, 1, 1, 1, 1, 2, 3]))):
        if draw(st.booleans()):
            masks.append(draw(words))
            conditionals = draw(st.lists(conditional, max_size=2))
            branches.append({"sample_mask": len(masks), "temperature": None, "splices": conditionals})
        else:
            branches.append({"sample_mask": None, "temperature": None, "splices": [draw(forced)]})
    return Answer({"branches": branches}, masks)


STOP = Answer({"branches": []})


def few_forks(answers: list[Answer]) -> bool:
    """Beyond the limit of forks, the order of forking decides which fork fails. Draw only programs below the limit."""
    values: list[Any] = [answer.value for answer in answers]
    return math.prod(max(1, v["num_forks"] if "num_forks" in v else len(v["branches"])) for v in values) <= 16


@settings(max_examples=40, deadline=None)
@given(st.lists(steps(), max_size=5).filter(few_forks))
def test_a_guest_with_branches(engines: dict[type[Engine], RawEngine], answers: list[Answer]) -> None:
    compare(engines, scripted.abi_v2(), scripted.argument([*answers, STOP, STOP]))


def before(num_forks: int = 1, ff_tokens: tuple[int, ...] = (), *, suspend: bool = False) -> Answer:
    return Answer({"num_forks": num_forks, "suspend": suspend, "ff_tokens": list(ff_tokens)})


pres = st.one_of(
    st.just(before()),
    st.just(before(suspend=True)),
    st.builds(before, st.integers(2, 3)),
    st.lists(tokens, min_size=1, max_size=3).map(lambda ff: before(ff_tokens=tuple(ff))),
)
mids = st.one_of(
    words.map(lambda word: Answer({"SampleWithBias": {}}, [word])),
    st.tuples(st.integers(0, 3), st.lists(tokens, min_size=1, max_size=3)).map(
        lambda pair: Answer({"Splice": {"backtrack": pair[0], "ff_tokens": pair[1]}})
    ),
    st.integers(1, 3).map(lambda n: Answer({"Splice": {"backtrack": n, "ff_tokens": []}})),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(pres, max_size=6).filter(few_forks), st.lists(mids, max_size=5), st.integers(0, 6))
def test_a_guest_with_callbacks(
    engines: dict[type[Engine], RawEngine], pre: list[Answer], mid: list[Answer], num_posts: int
) -> None:
    go, sample = before(), Answer({"SampleWithBias": {}}, [2])
    posts = [Answer({"stop": False})] * num_posts + [Answer({"stop": True})] * 3
    argument = scripted.argument([*pre, *[go] * num_posts, *[before(0)] * 3], [*mid, *[sample] * 20], posts)
    compare(engines, scripted.abi_v1(), argument)
