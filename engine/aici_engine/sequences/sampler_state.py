"""The sampler's state of a sequence."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from aici_base.ids import TokenId
from aici_engine.config import SamplingParams
from aici_engine.events import TokenScore

Bias: TypeAlias = tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]


@dataclass(slots=True)
class PromptScores:
    """The scores of the prompt's tokens from index `first` on, as far as computed."""

    first: int
    scores: list[TokenScore] = field(default_factory=list)

    @property
    def next_index(self) -> int:
        """The index of the first token without a score."""
        return self.first + len(self.scores)


@dataclass(slots=True)
class SamplerState:
    """Changed by `aici_engine.sample` alone, except by `take_scores`.

    `random`: the sequence's own generator, one draw a sampled token. `bias`: token ids, and the numbers to add to their
    logits; `None` without a bias. `prompt_scores`: `None` if no score is wanted, or all scores were reported.
    """

    random: random.Random
    bias: Bias | None = None
    prompt_scores: PromptScores | None = None

    @staticmethod
    def of(sampling: SamplingParams, prompt: list[TokenId], score_from: int | None) -> "SamplerState":
        """Return the state of a new sequence."""
        scores = None
        if score_from is not None:
            # Nothing precedes the first token, so it has no log-probability.
            scores = PromptScores(score_from, [TokenScore(prompt[0])] if score_from == 0 else [])
        bias = _arrays(sampling.logit_bias) if sampling.logit_bias else None
        return SamplerState(random.Random(sampling.seed), bias, scores)

    def fork(self, seed: int | None, lineage: tuple[int, ...]) -> "SamplerState":
        """Return the state of the fork at `lineage` in the tree of forks of a request with this seed.

        Fork k of the root draws the same numbers as a request with the seed `seed + k`. A fork of a fork draws numbers
        that depend on the seed and the lineage alone, and that no request with a whole number as the seed draws.
        """
        # Only requests without a controller score their prompt, and such requests do not fork.
        return SamplerState(random.Random(_seed_of_fork(seed, lineage)), self.bias)

    def take_scores(self, prompt_len: int) -> tuple[TokenScore, ...] | None:
        """Return the complete scores of the prompt, once; `None` while incomplete, and afterwards."""
        scores = self.prompt_scores
        if scores is None or scores.next_index != prompt_len:
            return None
        self.prompt_scores = None
        return tuple(scores.scores)


def _seed_of_fork(seed: int | None, lineage: tuple[int, ...]) -> int | str | None:
    if seed is None:
        return None
    # A sum would give forks of different parents the same seed.
    return seed + lineage[0] if len(lineage) == 1 else ".".join(map(str, (seed, *lineage)))


def _arrays(bias: Mapping[int, float]) -> Bias:
    return np.fromiter(bias, np.intp, len(bias)), np.fromiter(bias.values(), np.float32, len(bias))
