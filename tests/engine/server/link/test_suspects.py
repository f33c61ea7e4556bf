"""Requests that were in several engines when they died are refused for a while."""

import pytest

from aici_base.errors import UnavailableError
from aici_engine.config import SamplingParams
from aici_engine.server.link import wire
from aici_engine.server.link.suspects import Suspects, digest


def asks(*prompt: int, stream: int = 1) -> wire.Submit:
    return wire.Submit(list(prompt), SamplingParams(), stream=stream)


def is_refused(suspects: Suspects, request: wire.Submit) -> bool:
    try:
        suspects.check(request)
    except UnavailableError:
        return True
    return False


@pytest.mark.parametrize(
    ("deaths", "refused"),
    [
        ([{6}, {6}], False),
        ([{6}, {6}, {6}], True),
        ([{6}, {1}, {6}, {2}, {6}], True),
        ([{6}, {1}, {6}, {2}, {3}, {6}], False),
    ],
)
def test_three_of_the_last_five_deaths_make_a_suspect(deaths: list[set[int]], refused: bool) -> None:
    suspects = Suspects(lambda: 0.0)
    for number, tokens in enumerate(deaths):
        suspects.note_death([digest(asks(token, stream=number)) for token in tokens])
    assert is_refused(suspects, asks(6, stream=99)) is refused
    assert not is_refused(suspects, asks(7))


def test_deaths_are_forgotten() -> None:
    now = 0.0
    suspects = Suspects(lambda: now)
    for _ in range(3):
        suspects.note_death([digest(asks(6))])
    now = 599.0
    assert is_refused(suspects, asks(6))
    now = 601.0
    assert not is_refused(suspects, asks(6))


def test_requests_that_cannot_be_sent_are_no_suspects() -> None:
    suspects = Suspects(lambda: 0.0)
    unsendable = wire.Submit([1], SamplingParams(seed=1 << 70), stream=1)
    for _ in range(3):
        suspects.note_death([digest(unsendable)])
    assert not is_refused(suspects, unsendable)
