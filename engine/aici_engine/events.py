"""What a request reports while it runs: any number of other events, then exactly one finish event.

Who knows nothing of forks skips every ForkEvent, and sees the root alone.

What comes once a token is a named tuple: these are made in a third of the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from aici_base.errors import AiciError
from aici_base.ids import TokenId


class FinishReason(StrEnum):
    """`EOS`: the model ended the text, in plain generation or right before the controller stopped. `STOP`: the
    controller did. `STOP_STRING`: the text reached one of the request's stop strings."""

    EOS = "eos"
    STOP_STRING = "stop"
    LENGTH = "length"
    STOP = "aici-stop"
    ABORT = "abort"
    FAIL = "fail"
    DEADLOCK = "deadlock"
    OUT_OF_FUEL = "aici-out-of-fuel"


class Origin(StrEnum):
    SAMPLED = "sampled"
    FORCED = "forced"


class Token(NamedTuple):
    """`data`: its bytes, empty for special tokens. `logprob`, `top_logprobs`: as `SamplingParams.logprobs` asks."""

    token_id: TokenId
    data: bytes
    origin: Origin
    logprob: float | None = None
    top_logprobs: tuple[tuple[TokenId, float], ...] = ()


class TokenScore(NamedTuple):
    """A token's log-probability, None if it has none, and the likeliest tokens in its place, likeliest first.

    The token itself is among the latter only if it is so likely.
    """

    token_id: TokenId
    logprob: float | None = None
    top_logprobs: tuple[tuple[TokenId, float], ...] = ()


@dataclass(frozen=True, slots=True)
class AcceptedEvent:
    """Nothing is wrong with the request, and its guest, if any, has started: it waits for its turn, or runs.

    The first event of every request that does not fail, or end, before.
    """


@dataclass(frozen=True, slots=True)
class ScoreEvent:
    """The scores of the prompt's tokens, from `Request.score_from` on; once, before the first token event."""

    scores: tuple[TokenScore, ...]


@dataclass(frozen=True, slots=True)
class ControlEvent:
    """What the controller logged, and its writes of variables as the wire has them, in one of its callbacks.

    It comes before the token events of what that callback decided.
    """

    logs: str
    storage: tuple[Mapping[str, Any], ...]


class TokenEvent(NamedTuple):
    """`text`: what the stream gains; starts with ` ↩ ` after a backtrack. It may be empty while a character is
    incomplete, or while the text might be the beginning of a stop string: what turns out not to be comes later."""

    token: Token
    text: str


@dataclass(frozen=True, slots=True)
class BacktrackEvent:
    """The last `num_tokens` tokens reported by earlier events (or of the prompt, beyond those) are gone."""

    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """`sampled_tokens` and `ff_tokens` count what was sampled and what a controller forced, also if later removed.

    Prompt tokens are counted apart and not part of the cost. `cached_tokens` of them were not computed: they had been,
    for whoever began alike.
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
    """Seconds since the request was submitted. `first_token_s` is None if there was none."""

    started_s: float | None
    first_token_s: float | None
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishEvent:
    """The end. `text` is the true text, without what was backtracked; `tail` is what the stream gains at the very end.

    `storage` holds the controller's writes of variables, as the wire has them. `error` is set exactly if the reason is
    `FAIL`, `stop` exactly if it is `STOP_STRING`: the one that the text, which ends before it, had reached. `tokens`
    and `usage` count those that made it up; the usage of the last event of a request is that of all its forks.
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
    """The first event of a fork: it begins as a copy of fork `parent`. `text`: with what its stream begins, the true
    text so far but for what is held back. `tokens`: the output so far."""

    parent: int
    text: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class ForkEvent:
    """What happened in one of a request's forks: from a ForkedEvent to a FinishEvent, whose `logs`, `storage` and
    `usage` are what the fork itself added.

    What happens in fork 0, the root, comes as it is, but for its end while other forks live: that is told as a
    ForkEvent at once, and by the bare FinishEvent again when all have ended.
    """

    fork: int
    event: "Event"


Event: TypeAlias = (
    AcceptedEvent | ScoreEvent | ControlEvent | TokenEvent | BacktrackEvent | FinishEvent | ForkedEvent | ForkEvent
)
