"""Chooses the replica of a request: the cached tokens of the prompt, against the load."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

RUNNING_TOKENS: Final = 16
"""An open sequence costs a new request as much time as computing so many tokens of a prompt: every further sequence
makes the steps of an answer a little longer."""
QUEUED_TOKENS: Final = 256
"""The same for a sequence that must end before the new request has a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLoad:
    """The work of a replica. `cached_tokens`: of the new prompt. `waiting_tokens`: of prompts without a part of an
    answer. `num_open`: sequences that wait or run. `num_places`: sequences that may run.
    `num_requests`: requests so far."""

    replica: int
    cached_tokens: int
    waiting_tokens: int
    num_open: int
    num_places: int
    num_requests: int = 0


def cost(prompt_len: int, load: ReplicaLoad) -> int:
    """Return the time until the new request is answered, in tokens of prompts.

    >>> idle = ReplicaLoad(replica=1, cached_tokens=0, waiting_tokens=0, num_open=0, num_places=8)
    >>> cost(100, idle)
    100
    """
    num_queued = max(0, load.num_open + 1 - load.num_places)
    return (
        max(0, prompt_len - load.cached_tokens)
        + load.waiting_tokens
        + RUNNING_TOKENS * load.num_open
        + QUEUED_TOKENS * num_queued
    )


def choose(prompt_len: int, loads: Sequence[ReplicaLoad]) -> ReplicaLoad:
    """Return the replica with the least cost; among equals, the fewest open sequences, then the fewest requests so far.
    `loads` is not empty."""
    return min(loads, key=lambda load: (cost(prompt_len, load), load.num_open, load.num_requests, load.replica))
