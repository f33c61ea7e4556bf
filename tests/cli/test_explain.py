"""The trace of `aici run --explain`, over a stream without an engine."""

import json

import pytest

import aici
from aici.backend import Call
from aici.constraints import UNCONSTRAINED
from aici.stream import Stream
from aici_base.ids import TokenId
from aici_cli.explain import explain_stream, quoted
from tests.support.fake_backend import FakeBackend, finish_event

WHY = aici.Explanation(
    num_allowed=10,
    probability=0.125,
    masked_probability=0.5,
    likeliest=(
        aici.LikelyToken(TokenId(1), "the", 0.75, allowed=False),
        aici.LikelyToken(TokenId(2), "a", 0.125, allowed=True),
        aici.LikelyToken(TokenId(3), "\x1b[31m", 0.01, allowed=True),
    ),
    forward_s=0.01,
    guest_s=0.001,
)
SAMPLED = aici.Token(TokenId(2), b"a", aici.Origin.SAMPLED, explanation=WHY)
FORCED = aici.Token(TokenId(9), b'"\n', aici.Origin.FORCED)
SPECIAL = aici.Token(TokenId(256), b"", aici.Origin.SAMPLED)
EVENTS: list[aici.Event] = [
    aici.AcceptedEvent(),
    aici.ControlEvent("said \x1b[2J\n", ()),
    aici.TokenEvent(SAMPLED, "a"),
    aici.TokenEvent(FORCED, '"\n'),
    aici.BacktrackEvent(1),
    aici.ForkEvent(1, aici.ForkedEvent(0, "", (SAMPLED,))),
    aici.ForkEvent(1, aici.SuspendedEvent()),
    aici.TokenEvent(SPECIAL, ""),
    aici.ForkEvent(1, finish_event("a")),
    finish_event("a"),
]


def printed(capfdbinary: pytest.CaptureFixture[bytes], *, sample: int | None = None, as_json: bool) -> list[str]:
    stream = Stream(
        FakeBackend(EVENTS), Call(prompt="p", sampling=aici.SamplingParams(), constraint=None), "p", UNCONSTRAINED
    )
    assert explain_stream(stream, sample=sample, as_json=as_json).text == "a"
    return capfdbinary.readouterr().out.decode().splitlines()


def test_each_step_is_a_line(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    title, *lines = printed(capfdbinary, as_json=False)
    assert title.split()[:3] == ["step", "token", "before"]
    assert lines == [
        r"log      said \x1b[2J",
        r'sampled  "a"               12.5%  50.0%      10  refused "the" 75.0%  allowed "\x1b[31m" 1.0%',
        r"""forced   '"\n'""",
        r"""removed  '"\n'""",
        "[1] a fork of [0]",
        "[1] waits for another fork",
        "[0] sampled  token 256",
        '[1] ended    aici-stop: "a"',
        '[0] ended    aici-stop: "a"',
    ]


def test_as_json_each_event_is_an_object(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lines = [json.loads(line) for line in printed(capfdbinary, sample=2, as_json=True)]
    assert {line["sample"] for line in lines} == {2}
    events = ["control", "token", "token", "backtrack", "fork", "suspended", "token", "finish", "finish"]
    assert [line["event"] for line in lines] == events
    assert [line["fork"] for line in lines] == [0, 0, 0, 0, 1, 1, 0, 1, 0]
    assert lines[1]["explanation"]["likeliest"][0] == {"id": 1, "text": "the", "probability": 0.75, "allowed": False}
    assert lines[2] | {"text": ""} == {
        "sample": 2, "fork": 0, "event": "token", "id": 9, "bytes": "220a", "origin": "forced", "text": "",
    }  # fmt: skip
    assert lines[-1]["text"] == "a"


@pytest.mark.parametrize(
    ("text", "shown"), [("a b", '"a b"'), ('{"', "'{\"'"), ("\"'", '"\\"\'"'), ("\\n", '"\\\\n"'), ("\t", '"\\t"')]
)
def test_texts_are_quoted(text: str, shown: str) -> None:
    assert quoted(text) == shown
