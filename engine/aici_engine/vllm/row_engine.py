"""The seam between the engine's loop and vLLM: a row for each computing sequence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from aici_base.ids import TokenId
from aici_engine.events import TokenScore
from aici_engine.sampling_params import SamplingParams

Words: TypeAlias = npt.NDArray[np.int32]
"""A mask over all logits: a bit a token, 1: allowed, 32 tokens a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRow:
    """`tokens`: all tokens so far. `room`: the most tokens to add. `seed`: of the row; None without a seed.
    `is_controlled`: a guest decides on EOS, so vLLM must not."""

    key: str
    tokens: Sequence[TokenId]
    room: int
    sampling: SamplingParams
    seed: int | None
    salt: str | None
    is_controlled: bool


@dataclass(frozen=True, slots=True)
class RowToken:
    """A sampled token. `num_cached`: tokens of the row found in the cache. `is_last`: vLLM has ended the row."""

    key: str
    score: TokenScore
    num_cached: int
    is_last: bool


class RowEngine(Protocol):
    """vLLM, or a fake. Used by the engine's thread alone, after the constructor.

    `context`: the most tokens of a row. `num_logits`: the length of a row of logits. `num_pages`: blocks of the cache.
    `usage`: the part of the cache in use, 0 to 1. `is_elsewhere`: other processes compute, so the engine may sleep.
    `num_preemptions`: how often vLLM took back the cache of a row, which is then computed anew.
    """

    context: int
    num_logits: int
    num_pages: int
    is_elsewhere: bool

    @property
    def usage(self) -> float: ...

    @property
    def num_preemptions(self) -> int: ...

    def add(self, row: NewRow) -> None:
        """Begin a row. Tokens in the cache are not computed again."""

    def remove(self, key: str) -> None:
        """End a row. No effect on a row that vLLM has ended."""

    def step(self, ask: Callable[[list[str]], None], masks: Callable[[], Mapping[str, Words]]) -> list[RowToken]:
        """Compute a step, and sample at most a token for each row.

        `ask` is called before the forward pass with the rows to sample, `masks` after the pass has begun; each once a
        step. A row without a mask samples from all tokens.
        """

    def check_health(self) -> None:
        """Raise an exception if a process that computes is dead or silent. Call between steps."""

    def close(self) -> None: ...
