"""Many constrained sequences in one engine: constraints differ, and so do the steps at which the sequences join."""

import re
from itertools import pairwise

import pytest

from aici_engine.config import SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import FinishEvent, FinishReason, TokenEvent
from aici_engine.request import Request, RequestHandle
from tests.e2e.conftest import CallRegex
from tests.engine.support import wait_for_token

pytestmark = pytest.mark.e2e

PATTERNS = [
    r"\d\d",
    r"[a-z]{5,30}",
    r"(yes|no|maybe), (he|she|it) said\.",
    r"[A-Z][a-z]{2,9}( [A-Z][a-z]{2,9}){1,3}",
    r"\d{4}-\d{2}-\d{2}",
    r"[01]{24}",
    r"(red|green|blue)(, (red|green|blue)){3}",
    r"\{\"name\": \"[a-z]{1,12}\", \"age\": \d{1,3}\}",
    r"[^aeiou\n]{10,20}",
    r"(ab|ba){8}",
    r"[\u4e00-\u9fff]{3}",
    r"(?i)(the|a) [a-z]{3,10}!",
    r"\w{1,9}@\w{2,9}\.(com|org)",
    r"(one|two|three| ){12}",
    r"\+?\d{1,3}( \d{2,4}){3}",
    r"[a-f0-9]{8}-[a-f0-9]{4}",
]
PROMPTS = [f"Sample number {number}, written down for later use: " for number in range(16)]


def requests(regex: CallRegex) -> list[Request]:
    return [
        Request(
            prompt=prompt,
            controller=regex(pattern),
            sampling=SamplingParams(temperature=1.0, top_k=0, seed=100 + number, max_tokens=80),
        )
        for number, (prompt, pattern) in enumerate(zip(PROMPTS, PATTERNS, strict=True))
    ]


def test_sixteen_regexes_join_at_different_steps_and_are_as_if_alone(engine: Engine, regex: CallRegex) -> None:
    handles: list[RequestHandle] = []
    for request in requests(regex):
        handles.append(engine.submit(request))
        # Wait for a token before the next request: the sequences join at different steps.
        next(event for event in handles[-1].events() if isinstance(event, TokenEvent | FinishEvent))
    assert all(first < second for first, second in pairwise(handle.seq_id for handle in handles))
    together = [handle.wait() for handle in handles]
    alone = [engine.submit(request).wait() for request in requests(regex)]
    for pattern, end in zip(PATTERNS, together, strict=True):
        assert end.reason in (FinishReason.STOP, FinishReason.EOS), (pattern, end)
        assert re.fullmatch(pattern, end.text), (pattern, end.text)
    assert [end.text for end in together] == [end.text for end in alone]
    stats = engine.get_stats()
    assert (stats["active_requests"], stats["waiting_requests"], stats["cache_usage"]) == (0, 0, 0.0)


def test_plain_and_constrained_sequences_share_a_batch(engine: Engine, regex: CallRegex) -> None:
    greedy = SamplingParams(temperature=0.0, max_tokens=12)
    plain = Request(prompt="The capital of France is", sampling=greedy)
    bound = Request(prompt="The capital of France is", sampling=greedy, controller=regex("[A-Z]{6}"))
    alone = engine.submit(plain).wait().text
    mixed = [engine.submit(request) for request in (plain, bound, plain, bound)]
    texts = [handle.wait().text for handle in mixed]
    assert texts[0] == texts[2] == alone
    assert texts[1] == texts[3]
    assert re.fullmatch("[A-Z]{6}", texts[1])


def test_an_aborted_sequence_ends_alone_and_gives_its_pages_back(engine: Engine, regex: CallRegex) -> None:
    endless = Request(prompt="Once", sampling=SamplingParams(max_tokens=4000), controller=regex("[a-z ]*"))
    short = Request(prompt="Once", sampling=SamplingParams(temperature=0.0, max_tokens=60), controller=regex(r"\d{10}"))
    first, second = engine.submit(endless), engine.submit(short)
    wait_for_token(first)
    first.abort()
    assert first.wait().reason is FinishReason.ABORT
    assert re.fullmatch(r"\d{10}", second.wait().text)
    assert engine.get_stats()["cache_usage"] == 0.0
