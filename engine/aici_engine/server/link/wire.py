"""What the API process and the engine process say to each other: msgpack, one list of messages a frame.

To the engine: Submit, Abort, Call. From it: Ready once, then the events of streams (AcceptedOut to FinishOut), each
with the number that the API process gave the stream, and a Reply to each Call. Every stream that was submitted ends
with exactly one FinishOut.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from aici_base.errors import (
    AiciError,
    ControllerError,
    NotFoundError,
    QuotaError,
    RuntimeDiedError,
    TimedOutError,
    UnavailableError,
    UsageError,
)
from aici_engine.config import SamplingParams
from aici_engine.events import FinishReason


class Submit(Struct, frozen=True, array_like=True, tag="submit"):
    """`controller`: module id or tag; None generates without one. `argument`: any JSON. The others: see Request."""

    stream: int
    prompt: list[int]
    sampling: SamplingParams
    controller: str | None = None
    argument: Any = None
    score_from: int | None = None
    priority: int = 0
    salt: str | None = None


class Abort(Struct, frozen=True, array_like=True, tag="abort"):
    stream: int


class Call(Struct, frozen=True, array_like=True, tag="call"):
    """`method`: stats."""

    call: int
    method: str


class Failure(Struct, frozen=True, array_like=True):
    """An AiciError on its way between processes."""

    code: str
    message: str
    hint: str = ""

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        if isinstance(error, AiciError):
            return cls(error.code, error.message, error.hint)
        return cls(AiciError.code, f"the engine failed: {error!r}")

    def error(self) -> AiciError:
        return _ERRORS.get(self.code, AiciError)(self.message, hint=self.hint)


class EngineInfo(Struct, frozen=True, array_like=True):
    """`max_len`: tokens, prompt and output together. `max_num_seqs`: sequences that run at a time. `eos_tokens`: each
    ends plain generation."""

    vocab_size: int
    max_len: int
    max_num_seqs: int
    eos_tokens: tuple[int, ...] = ()


class Ready(Struct, frozen=True, array_like=True, tag="ready"):
    info: EngineInfo


class AcceptedOut(Struct, frozen=True, array_like=True, tag="accepted"):
    """Nothing is wrong with it, and its guest, if any, has started. First of all, unless it fails before."""

    stream: int


class TokenOut(Struct, frozen=True, array_like=True, tag="token"):
    """`text`: what the stream gains. `top`: the likeliest tokens, first the likeliest."""

    stream: int
    token: int
    data: bytes
    text: str
    forced: bool
    logprob: float | None
    top: list[tuple[int, float]]


class BacktrackOut(Struct, frozen=True, array_like=True, tag="backtrack"):
    stream: int
    num_tokens: int


Score: TypeAlias = tuple[int, float | None, list[tuple[int, float]]]


class ScoreOut(Struct, frozen=True, array_like=True, tag="score"):
    """`scores`: (token, log-probability, likeliest tokens) of the prompt tokens that were to be scored."""

    stream: int
    scores: list[Score]


class ControlOut(Struct, frozen=True, array_like=True, tag="control"):
    stream: int
    logs: str
    storage: list[Any]


class UsageOut(Struct, frozen=True, array_like=True):
    """Tokens. `prompt`: of the prompt, of which `cached` were there; `sampled` and `forced`: of the output, also those
    that were removed again."""

    prompt: int
    sampled: int
    forced: int
    cached: int = 0

    @property
    def output(self) -> int:
        return self.sampled + self.forced


class FinishOut(Struct, frozen=True, array_like=True, tag="finish"):
    """The end. `tail`: what the stream gains now. `stop`: the stop string, if one ended it. `failure` exactly if FAIL.
    `text`: the true one, without what a controller took back. The last one's `usage` is that of all forks.

    Times in seconds since the request was submitted; None for what never came.
    """

    stream: int
    reason: FinishReason
    tail: str
    usage: UsageOut
    stop: str | None = None
    started_s: float | None = None
    first_token_s: float | None = None
    total_s: float = 0.0
    failure: Failure | None = None
    text: str = ""


class ForkedOut(Struct, frozen=True, array_like=True, tag="forked"):
    """The first event of a fork. `text`: with what its stream begins. `tokens`: its output so far, without texts."""

    stream: int
    parent: int
    text: str
    tokens: list[TokenOut]


SequenceOut: TypeAlias = TokenOut | BacktrackOut | ControlOut | FinishOut | ForkedOut


class ForkOut(Struct, frozen=True, array_like=True, tag="fork"):
    """What happened in a fork; see `aici_engine.events.ForkEvent`. Who knows no forks skips it, and sees the root."""

    stream: int
    fork: int
    event: SequenceOut


class Reply(Struct, frozen=True, array_like=True, tag="reply"):
    call: int
    result: Any = None
    failure: Failure | None = None


ToEngine: TypeAlias = Submit | Abort | Call
StreamOut: TypeAlias = AcceptedOut | ScoreOut | SequenceOut | ForkOut
FromEngine: TypeAlias = Ready | StreamOut | Reply

_ERRORS: Mapping[str, type[AiciError]] = {
    kind.code: kind
    for kind in (
        NotFoundError,
        QuotaError,
        UsageError,
        ControllerError,
        RuntimeDiedError,
        TimedOutError,
        UnavailableError,
        AiciError,
    )
}
encode = msgspec.msgpack.Encoder().encode
decode_to_engine = msgspec.msgpack.Decoder(list[ToEngine]).decode
decode_from_engine = msgspec.msgpack.Decoder(list[FromEngine]).decode
