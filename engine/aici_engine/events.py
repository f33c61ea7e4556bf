"""The events of a request: any number of events, then exactly one FinishEvent.

A listener without interest in forks skips every ForkEvent, and sees the root alone. Frequent events are named tuples,
which are made in a third of the time of a dataclass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from aici_base.errors import AiciError
from aici_base.ids import TokenId

if TYPE_CHECKING:  # `import aici` loads no numpy
    import numpy as np
    import numpy.typing as npt


class FinishReason(StrEnum):
    """Why a sequence ended.

    `EOS`: the model ended the text, in plain generation or right before the controller stopped. `STOP_STRING`: the text
    reached a stop string. `LENGTH`: `max_tokens` or the context is used up. `STOP`: the controller stopped. `ABORT`:
    the caller aborted the request. `FAIL`: an error. `DEADLOCK`: all forks stayed suspended. `OUT_OF_FUEL`: the
    controller backtracked too much.
    """

    EOS = "eos"
    STOP_STRING = "stop"
    LENGTH = "length"
    STOP = "aici-stop"
    ABORT = "abort"
    FAIL = "fail"
    DEADLOCK = "deadlock"
    OUT_OF_FUEL = "aici-out-of-fuel"


CONTROLLER_FAILURES: Final[Mapping[FinishReason, str]] = {
    FinishReason.DEADLOCK: "the controller waits, and no other fork is left to wake it",
    FinishReason.OUT_OF_FUEL: "the controller used up its fuel (ten contexts' worth of tokens) without an end",
}
"""The message of each finish reason that is a controller's failure without an error of its own."""


class Origin(StrEnum):
    """Whether a token was sampled by the engine or forced by the controller."""

    SAMPLED = "sampled"
    FORCED = "forced"


class LikelyToken(NamedTuple):
    """A token that the model found likely. `text`: its text, or the name of a special token. `probability`: before the
    mask. `allowed`: the mask let the token pass."""

    token_id: TokenId
    text: str
    probability: float
    allowed: bool


class Explanation(NamedTuple):
    """How a token came to be sampled, for requests with `SamplingParams.explain`.

    `num_allowed`: the number of tokens that the mask allowed. `probability`, `masked_probability`: of the sampled
    token, before and after the mask. `likeliest`: the likeliest tokens before the mask, likeliest first. Probabilities
    are the model's own: before penalties, temperature, top-k, top-p and min-p. `forward_s`: seconds from the begin of
    the forward pass to its logits, for all sequences of the step together. `guest_s`: seconds in which the guest
    computed the mask; None without a controller.
    """

    num_allowed: int
    probability: float
    masked_probability: float
    likeliest: tuple[LikelyToken, ...]
    forward_s: float = 0.0
    guest_s: float | None = None


def explanation_fields(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation as an object of JSON."""
    likeliest = [
        {"id": token_id, "text": text, "probability": probability, "allowed": allowed}
        for token_id, text, probability, allowed in explanation.likeliest
    ]
    return {**explanation._asdict(), "likeliest": likeliest}


class Token(NamedTuple):
    """An output token. `data`: its bytes, empty for special tokens. `logprob`, `top_logprobs`, `explanation`: see
    `SamplingParams`; a forced token has no explanation."""

    token_id: TokenId
    data: bytes
    origin: Origin
    logprob: float | None = None
    top_logprobs: tuple[tuple[TokenId, float], ...] = ()
    explanation: Explanation | None = None


class TokenScore(NamedTuple):
    """A token's log-probability, and the likeliest tokens in its place with theirs, likeliest first.

    `logprob`: `None` without a score. `top_logprobs` contains the token itself only if the token is likely enough.
    """

    token_id: TokenId
    logprob: float | None = None
    top_logprobs: tuple[tuple[TokenId, float], ...] = ()
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class AcceptedEvent:
    """The request is valid and its guest, if any, has started. The request waits for admission, or runs.

    The first event of a request, unless the request fails or ends before.
    """


@dataclass(frozen=True, slots=True)
class ScoreEvent:
    """The scores of the prompt's tokens from `Request.score_from` on. Sent once, before the first TokenEvent."""

    scores: tuple[TokenScore, ...]


@dataclass(frozen=True, slots=True)
class EmbeddingEvent:
    """The pooled final states (hidden_size,) of a request with `Request.pooling`, not normalized."""

    vector: "npt.NDArray[np.float32]"


@dataclass(frozen=True, slots=True)
class ControlEvent:
    """The logs and the writes of variables of one callback of the controller, writes in the wire's form.

    Sent before the token events that follow from the callback.
    """

    logs: str
    storage: tuple[Mapping[str, Any], ...]


class TokenEvent(NamedTuple):
    """A token was appended. `text`: the text that the stream gains, with ` ↩ ` in front after a backtrack.

    `text` is empty while a character is incomplete. Text that may begin a stop string is held back, and sent with a
    later event if no stop string follows.
    """

    token: Token
    text: str


@dataclass(frozen=True, slots=True)
class BacktrackEvent:
    """The last `num_tokens` tokens of the output, and beyond the output of the prompt, were removed."""

    num_tokens: int


@dataclass(frozen=True, slots=True)
class SuspendedEvent:
    """The controller waits for another fork. Sent for requests with `SamplingParams.explain` only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts. `sampled_tokens` and `ff_tokens` (forced by a controller) include tokens removed later.

    `prompt_tokens` are not part of the cost. `cached_tokens`: prompt tokens found in the cache, computed for requests
    with the same beginning.
    """

    prompt_tokens: int
    sampled_tokens: int
    ff_tokens: int
    cached_tokens: int = 0

    @property
    def cost(self) -> int:
        return 2 * self.sampled_tokens + self.ff_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds since submission. `started_s`: until the sequence ran; `first_token_s`: until the first token; or
    `None`."""

    started_s: float | None
    first_token_s: float | None
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishEvent:
    """The end of a sequence, or of the request. `text`: the true text, without removed tokens. `tail`: the text that
    the stream gains at the end.

    `tokens`: the tokens of the output. `usage`: the usage of the sequence; in the last event of a request, of all
    forks. `logs`, `storage`: the controller's logs and writes of variables, writes in the wire's form. `error` is set
    exactly if the reason is `FAIL`, `stop` exactly if the reason is `STOP_STRING`: the stop string reached, which
    `text` excludes.
    """

    reason: FinishReason
    text: str
    tail: str
    tokens: tuple[Token, ...]
    usage: Usage
    timings: Timings
    logs: str
    storage: tuple[Mapping[str, Any], ...]
    error: AiciError | None
    stop: str | None = None


@dataclass(frozen=True, slots=True)
class ForkedEvent:
    """The first event of a fork, a copy of fork `parent`. `tokens`: the output so far.

    `text`: the beginning of the fork's stream, the true text so far without the held-back end.
    """

    parent: int
    text: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class ForkEvent:
    """An event of fork `fork`, from its ForkedEvent to its FinishEvent.

    The `logs`, `storage` and `usage` of the FinishEvent are the fork's own. Events of fork 0, the root, are sent bare.
    The exception is a root that ends before its forks: its FinishEvent is sent at once in a ForkEvent, and bare after
    the last fork has ended.
    """

    fork: int
    event: "Event"


Event: TypeAlias = (
    AcceptedEvent
    | ScoreEvent
    | EmbeddingEvent
    | ControlEvent
    | TokenEvent
    | BacktrackEvent
    | SuspendedEvent
    | FinishEvent
    | ForkedEvent
    | ForkEvent
)
