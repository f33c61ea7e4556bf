"""The messages between the API process and the engine process. A frame is a msgpack list of messages.

The API process sends Submit, Abort, EngineCall and Nudge. The engine process sends Ready once, then events of streams
(AcceptedOut to FinishOut), a Reply for every EngineCall, and GuestTimeOut about once a second while guests run. An
event carries the stream number that the API process chose. Every submitted stream ends with exactly one FinishOut.
"""

from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from aici_engine.config import SamplingParams
from aici_engine.events import Explanation, FinishReason
from aici_engine.failure import Failure as Failure
from aici_engine.pooling_kinds import Pooling
from aici_engine.request import NOBODY, Share


class Submit(Struct, frozen=True, array_like=True, tag="submit"):
    """Start a sequence. The fields mean the same as in `aici_engine.request.Request`.

    `controller`: a module id or a tag; None generates without a controller. `argument`: any JSON value. `stream`: the
    number of the sequence's events; the client of the link chooses the number.
    """

    prompt: list[int]
    sampling: SamplingParams
    controller: str | None = None
    argument: Any = None
    score_from: int | None = None
    priority: int = 0
    salt: str | None = None
    share: Share = NOBODY
    pooling: Pooling | None = None
    stream: int = 0
    prediction: list[int] = []


class Abort(Struct, frozen=True, array_like=True, tag="abort"):
    stream: int


class EngineCall(Struct, frozen=True, array_like=True, tag="call"):
    """Ask the engine for data outside of any stream. `method`: "stats"; "cluster": the state of the pipeline, None
    without a pipeline; "ping": None, between two steps of the engine's loop."""

    call: int
    method: str


class Nudge(Struct, frozen=True, array_like=True, tag="nudge"):
    """Ask the engine's loop for a turn, so that its heartbeat counts. There is no reply."""


class EngineInfo(Struct, frozen=True, array_like=True):
    """The engine's sizes.

    `max_len`: the most tokens of a sequence, prompt and output together. `max_num_seqs`: the most sequences that run at
    a time. `eos_tokens`: the tokens that end plain generation. `states_size`: the numbers of an embedding; 0 if the
    engine computes none.
    `memory_bytes`: of the weights and a full cache. `lacking`: module id → name of the controllers that could not be
    compiled, such as on a full disk.
    """

    vocab_size: int
    max_len: int
    max_num_seqs: int
    eos_tokens: tuple[int, ...] = ()
    states_size: int = 0
    memory_bytes: int = 0
    lacking: dict[str, str] = {}


class Ready(Struct, frozen=True, array_like=True, tag="ready"):
    info: EngineInfo


class AcceptedOut(Struct, frozen=True, array_like=True, tag="accepted"):
    """The request is valid and its guest, if any, has started. The first event, unless the stream fails earlier."""

    stream: int


class TokenOut(Struct, frozen=True, array_like=True, tag="token"):
    """A token of the output. `text`: the text added to the stream. `top`: the likeliest tokens, best first.
    `explanation`: of a sampled token, if the request asked for it."""

    stream: int
    token: int
    data: bytes
    text: str
    forced: bool
    logprob: float | None
    top: list[tuple[int, float]]
    explanation: Explanation | None = None


class BacktrackOut(Struct, frozen=True, array_like=True, tag="backtrack"):
    stream: int
    num_tokens: int


class SuspendedOut(Struct, frozen=True, array_like=True, tag="suspended"):
    """The controller waits for another fork. Sent to requests that asked for explanations."""

    stream: int


Score: TypeAlias = tuple[int, float | None, list[tuple[int, float]]]


class ScoreOut(Struct, frozen=True, array_like=True, tag="score"):
    """`scores`: (token, log-probability, likeliest tokens) for every prompt token from `score_from` on."""

    stream: int
    scores: list[Score]


class EmbeddingOut(Struct, frozen=True, array_like=True, tag="embedding"):
    """`vector`: 32-bit floats, little-endian, not normalized."""

    stream: int
    vector: bytes


class ControlOut(Struct, frozen=True, array_like=True, tag="control"):
    stream: int
    logs: str
    storage: list[Any]


class UsageOut(Struct, frozen=True, array_like=True):
    """Token counts. `cached`: prompt tokens found in the prefix cache. `sampled`, `forced`: output tokens, including
    tokens that a controller removed later."""

    prompt: int
    sampled: int
    forced: int
    cached: int = 0

    @property
    def output(self) -> int:
        return self.sampled + self.forced


class FinishOut(Struct, frozen=True, array_like=True, tag="finish"):
    """The end of a sequence. `failure` is set if and only if `reason` is FAIL.

    `tail`: text that was held back and is added now. `stop`: the stop string that ended the sequence, if any.
    `text`: the final text, without tokens that a controller removed. `usage` of a request's last FinishOut counts all
    forks. Times are seconds since the request was submitted; None if the event never happened.
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
    """The first event of a fork. `text`: the text so far. `tokens`: the output tokens so far, with empty texts."""

    stream: int
    parent: int
    text: str
    tokens: list[TokenOut]


SequenceOut: TypeAlias = TokenOut | BacktrackOut | SuspendedOut | ControlOut | FinishOut | ForkedOut


class ForkOut(Struct, frozen=True, array_like=True, tag="fork"):
    """An event of fork number `fork` > 0. A protocol without forks skips ForkOut and shows the root sequence only.

    See `aici_engine.events.ForkEvent`.
    """

    stream: int
    fork: int
    event: SequenceOut


class Reply(Struct, frozen=True, array_like=True, tag="reply"):
    call: int
    result: Any = None
    failure: Failure | None = None


class GuestTimeOut(Struct, frozen=True, array_like=True, tag="guest_time"):
    """Seconds of processor time that guests have used since the last such message, by the owner of the request."""

    used_s: dict[str, float]


ToEngine: TypeAlias = Submit | Abort | EngineCall | Nudge
StreamOut: TypeAlias = AcceptedOut | ScoreOut | EmbeddingOut | SequenceOut | ForkOut
FromEngine: TypeAlias = Ready | StreamOut | Reply | GuestTimeOut

encode = msgspec.msgpack.Encoder().encode
decode_to_engine = msgspec.msgpack.Decoder(list[ToEngine]).decode
decode_from_engine = msgspec.msgpack.Decoder(list[FromEngine]).decode
