"""What a request reports while it runs. Any number of token and backtrack events, then exactly one finish event."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from aici_runtime.errors import AiciError
from aici_runtime.ids import TokenId


class FinishReason(StrEnum):
    """`EOS`: sampled, in plain generation or right before the controller stopped. `STOP`: the controller stopped."""

    EOS = "eos"
    LENGTH = "length"
    STOP = "aici-stop"
    ABORT = "abort"
    FAIL = "fail"
    DEADLOCK = "deadlock"
    OUT_OF_FUEL = "aici-out-of-fuel"


class Origin(StrEnum):
    SAMPLED = "sampled"
    FORCED = "forced"


@dataclass(frozen=True, slots=True)
class Token:
    """`data`: its bytes, empty for special tokens."""

    token_id: TokenId
    data: bytes
    origin: Origin


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """`text`: what the stream gains; may be empty while a character is incomplete, and starts with ` ↩ ` after a
    backtrack."""

    token: Token
    text: str


@dataclass(frozen=True, slots=True)
class BacktrackEvent:
    """The last `num_tokens` tokens reported by earlier events (or of the prompt, beyond those) are gone."""

    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """`sampled_tokens` and `ff_tokens` count what was sampled and what a controller forced, also if later removed.

    Prompt tokens are counted apart and not part of the cost.
    """

    prompt_tokens: int
    sampled_tokens: int
    ff_tokens: int

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
    `FAIL`.
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


Event: TypeAlias = TokenEvent | BacktrackEvent | FinishEvent
