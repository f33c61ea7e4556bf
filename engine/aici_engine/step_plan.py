"""The scheduler's decision: which tokens of which sequences a step computes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from aici_base.ids import SeqId, TokenId
from aici_engine.sequences.sequence import Sequence

Drafts: TypeAlias = Mapping[SeqId, list[TokenId]]
"""Drafted tokens, by sequence."""


class PlannedChunk(NamedTuple):
    """Compute the next `num_tokens` tokens of `seq`. `samples`: the last token of `seq` is among the computed
    tokens."""

    seq: Sequence
    num_tokens: int
    samples: bool


@dataclass(slots=True)
class StepPlan:
    """What a step computes, oldest sequence first, and the sequences preempted to make room.

    `drafts`: tokens to compute after the chunks of some sequences, whose chunks sample.
    """

    chunks: list[PlannedChunk] = field(default_factory=list)
    preempted: list[SeqId] = field(default_factory=list)
    drafts: Drafts = field(default_factory=dict)

    @property
    def num_tokens(self) -> int:
        """The tokens to compute, drafted tokens included."""
        return sum(chunk.num_tokens for chunk in self.chunks) + sum(map(len, self.drafts.values()))
