"""One sequence's life in the engine, and what those of one request share. Touched by the engine's thread alone."""

import copy
import itertools
import random
import time
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from enum import Enum, auto
from typing import Any

import numpy as np
import numpy.typing as npt

from aici_base.errors import AiciError
from aici_base.ids import SeqId, TokenId
from aici_engine.config import SamplingParams
from aici_engine.events import FinishEvent, FinishReason, Origin, Token, TokenScore
from aici_engine.request import ControllerCall, Sink
from aici_engine.text_stream import TextStream

PRIORITY_S = 60.0
"""Who waited for so long has made up for a step of priority: so nobody waits for ever."""


class Phase(Enum):
    """`STARTING`: its guest is being instantiated. `WAITING`: for a slot and pages. `RUNNING`: has both."""

    STARTING = auto()
    WAITING = auto()
    RUNNING = auto()
    ENDED = auto()


class SequenceGroup:
    """One request. `members`: its sequences that have not ended. `root_end`: how the root did, once it has.

    Forks are numbered as they come into being; 0 is the root, the only one at first. `fuel`: what they have cost, and
    one for each step in which a guest changed nothing: that costs a forward pass too.
    """

    def __init__(self, request_id: SeqId, sink: Sink) -> None:
        self.request_id = request_id
        self.sink = sink
        self.members: list[Sequence] = []
        self.root_end: FinishEvent | None = None
        self.num_forks = 0
        self.num_sampled = 0
        self.num_forced = 0
        self.num_idle = 0
        self.rounds_suspended = 0

    @property
    def fuel(self) -> int:
        return 2 * self.num_sampled + self.num_forced + self.num_idle

    @property
    def suspended(self) -> bool:
        """Nobody in it can wake another."""
        return all(seq.suspended and not seq.late for seq in self.members if seq.verdict is None)

    def join(self, seq: "Sequence") -> int:
        """Returns the number of the fork."""
        self.members.append(seq)
        self.num_forks += 1
        return self.num_forks - 1

    def end(self, reason: FinishReason, error: AiciError | None = None) -> None:
        """Ask for the end of all of them."""
        for seq in self.members:
            seq.end(reason, error)


class Sequence:
    """`tokens`: prompt, then output; the first `prompt_len` are the prompt. `num_computed` catches up with them.

    `limit`: the most tokens, prompt included, that it may ever have. `num_forks`: into how many its controller wants it
    to be forked, itself among them, when it is next sampled. An EOS that a controller chose
    to live through may stand in `tokens` as another token. `bias`: the tokens whose logits are to be biased, and by
    what. `scores`: those of the prompt's tokens from `score_from` on, so far; that is None when none is to be scored.
    `salt`: computed tokens are shared among sequences that have the same.
    """

    def __init__(
        self,
        seq_id: SeqId,
        *,
        prompt: list[TokenId],
        sampling: SamplingParams,
        controller: ControllerCall | None,
        limit: int,
        sink: Sink,
        submitted_at: float,
        score_from: int | None = None,
        priority: int = 0,
        salt: str | None = None,
    ) -> None:
        self.seq_id = seq_id
        self.tokens = prompt
        self.prompt_len = len(prompt)
        self.sampling = sampling
        self.controller = controller
        self.limit = limit
        self.group = SequenceGroup(seq_id, sink)
        self.fork = self.group.join(self)
        self.phase = Phase.STARTING if controller else Phase.WAITING
        self.salt = salt
        self.num_computed = 0
        self.num_lost = 0
        """So many had been computed when it had to give up its pages."""
        self.num_reused = 0
        """Tokens of the prompt that were computed before it came."""
        self.num_prompt_tokens = len(prompt)
        self.num_sampled = 0
        self.num_forced = 0
        self.output: list[Token] = []
        self.text = TextStream(sampling.stop)
        self.random = random.Random(sampling.seed)
        self.bias = _arrays(sampling.logit_bias) if sampling.logit_bias else None
        self.score_from = score_from
        # Nothing precedes the first token.
        self.scores = [TokenScore(prompt[0])] if score_from == 0 else []
        # Control.
        self.bound = False
        self.suspended = False
        self.late = False
        """Suspended because its guest is still computing."""
        self.num_forks = 1
        self.num_calm = 0
        """Rounds in a row in which its guest said nothing but to go on. After `calm_rounds`, no round waits for it."""
        self.calm_rounds = 1
        self.last_was_eos = False
        self.logs: list[str] = []
        self.storage: list[dict[str, Any]] = []
        # Times, by the monotonic clock.
        self.submitted_at = submitted_at
        self.due_at = submitted_at + PRIORITY_S * priority
        self.started_at: float | None = None
        self.first_token_at: float | None = None
        # Set by whoever finds that it must end; the loop ends it.
        self.verdict: tuple[FinishReason, AiciError | None] | None = None

    def clone(self, seq_id: SeqId) -> "tuple[Sequence, str]":
        """A fork of it as it stands, without pages, and what that one's stream begins with.

        Fork k of a request with a seed draws its numbers as a request with the seed `seed + k` does.
        """
        fork = copy.copy(self)
        fork.seq_id = seq_id
        fork.fork = self.group.join(fork)
        fork.tokens, fork.output = list(self.tokens), list(self.output)
        fork.text, begin = self.text.fork()
        fork.logs, fork.storage = [], []
        fork.num_prompt_tokens = fork.num_reused = fork.num_sampled = fork.num_forced = 0
        fork.started_at, fork.first_token_at = time.monotonic(), None
        seed = self.sampling.seed
        fork.random = random.Random(None if seed is None else seed + fork.fork)
        return fork, begin

    @property
    def req_id(self) -> str:
        return f"r{self.group.request_id}"

    @property
    def order(self) -> tuple[float, SeqId, SeqId]:
        """Who comes first in it is served first."""
        return self.due_at, self.group.request_id, self.seq_id

    @property
    def num_pending(self) -> int:
        """Tokens whose keys and values are not computed. At least 1 while it lives: logits come from the last token."""
        return len(self.tokens) - self.num_computed

    @property
    def num_reusable(self) -> int:
        """How many of its first tokens need not be computed. Logits come from the last one, and from those before
        tokens that are to be scored."""
        last = len(self.tokens) if self.score_from is None else self.score_from + len(self.scores)
        return last - 1

    @property
    def room(self) -> int:
        return self.limit - len(self.tokens)

    def end(self, reason: FinishReason, error: AiciError | None = None) -> None:
        """Ask for the end. The first reason stands."""
        if self.verdict is None:
            self.verdict = (reason, error)

    def append(self, token: Token, *, kept_as: TokenId | None = None) -> str:
        """Returns what the stream gains. `kept_as`: what the model is to see."""
        self.tokens.append(token.token_id if kept_as is None else kept_as)
        self.output.append(token)
        if token.origin is Origin.SAMPLED:
            self.num_sampled += 1
            self.group.num_sampled += 1
        else:
            self.num_forced += 1
            self.group.num_forced += 1
        text = self.text.push(token.data)
        if self.text.stop is not None:
            self.end(FinishReason.STOP_STRING)
        return text

    def num_kept(self, num_tokens: int, new: Seq[TokenId], eos_tokens: frozenset[TokenId]) -> int:
        """How many of its last tokens stay as they are, should they be removed and `new` take their place.

        To a controller `eos_tokens` are one and the same.
        """
        tokens = [*self.tokens[: self.prompt_len], *(token.token_id for token in self.output)]
        pairs = zip(tokens[len(tokens) - num_tokens :], new, strict=False)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1] or eos_tokens.issuperset(pair), pairs)
        return sum(1 for _ in same)

    def remove(self, num_tokens: int) -> None:
        """Forget the last tokens, of the prompt too once the output is used up. At least one must come or remain."""
        del self.tokens[len(self.tokens) - num_tokens :]
        del self.output[max(0, len(self.output) - num_tokens) :]
        self.text.backtrack(num_tokens)
        self.prompt_len = min(self.prompt_len, len(self.tokens))
        self.num_computed = min(self.num_computed, len(self.tokens))
        if self.sampling.max_tokens is not None:
            # It bounds the output, which begins earlier now.
            self.limit = min(self.limit, self.prompt_len + self.sampling.max_tokens)


def _arrays(bias: Mapping[int, float]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]:
    return np.fromiter(bias, np.intp, len(bias)), np.fromiter(bias.values(), np.float32, len(bias))
