"""One sequence in the engine: identity, parts and end. Used by the engine's thread alone.

One module changes the fields of a part. Other modules read, or call a method of `Sequence`:

    part        content                           changed by
    transcript  tokens and output text            `event_output`
    progress    tokens with computed KV           `scheduler`; with vLLM, `vllm.row_queue`
    guest       the conversation with the guest   `control`
    sampler     randomness, bias, prompt scores   `sample`
    clock       times                             its own methods, which write once
    pooling     pooled states of the prompt       its own methods
"""

import copy
from collections.abc import Sequence as Seq
from typing import NamedTuple

from aici_base.errors import AiciError
from aici_base.ids import SeqId, TokenId
from aici_engine.config import SamplingParams
from aici_engine.events import FinishReason, Token
from aici_engine.pooling import PromptPooling
from aici_engine.pooling_kinds import Pooling
from aici_engine.request import NOBODY, ControllerCall, Share, Sink
from aici_engine.sequences.clock import Clock
from aici_engine.sequences.group import SequenceGroup
from aici_engine.sequences.guest_conversation import GuestConversation
from aici_engine.sequences.progress import CacheProgress, Phase
from aici_engine.sequences.sampler_state import SamplerState
from aici_engine.sequences.transcript import Transcript


class Ending(NamedTuple):
    """Why a sequence must end. `error` is set exactly if `reason` is `FAIL`."""

    reason: FinishReason
    error: AiciError | None


class Sequence:
    """A request begins as one sequence, fork 0. Forks made by its controller are further sequences of the same `group`.

    `lineage`: the place in the tree of forks, which does not depend on scheduling. The root has (), the second fork of
    the root has (2,), and the first fork of that fork has (2, 1). `fork`: the number of the sequence among all forks of
    the request, in the order of creation; the order depends on scheduling if several forks of a request fork.

    `limit`: the most tokens, prompt included. `salt`: sequences with the same salt share computed pages. `share`: whose
    sequence it is. `kind`: the owner, and the controller's module. `prediction`: see `Request`. `order`: the rank of
    age, which never changes; a sequence with a smaller `order` is older.
    `pooling`: of a request for an embedding, else None. `ending`: None while the sequence lives. Any module may call
    `end`; the loop ends the sequence before its next step.
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
        pooling: Pooling | None = None,
        priority: int = 0,
        salt: str | None = None,
        share: Share = NOBODY,
        prediction: Seq[TokenId] = (),
    ) -> None:
        self.seq_id = seq_id
        self.sampling = sampling
        self.controller = controller
        self.salt = salt
        self.share = share
        self.prediction = prediction
        self.kind = share.owner, None if controller is None else controller.module_id
        self.transcript = Transcript(prompt, limit=limit, max_tokens=sampling.max_tokens, stop=sampling.stop)
        self.progress = CacheProgress(Phase.NEW)
        self.guest = GuestConversation()
        self.sampler = SamplerState.of(sampling, prompt, score_from)
        self.clock = Clock(submitted_at, priority)
        self.pooling = None if pooling is None else PromptPooling(pooling, len(prompt))
        self.ending: Ending | None = None
        self.group = SequenceGroup(seq_id, sink)
        self.fork = self.group.join(self)
        self.order = (self.clock.due_at, self.group.request_id, seq_id)
        self.lineage: tuple[int, ...] = ()
        self._num_children = 0

    def clone(self, seq_id: SeqId) -> "tuple[Sequence, str]":
        """Return a fork of the sequence as it stands, without pages, and the text that the fork's stream begins with.

        The random numbers of the fork depend on the seed and on `lineage`.
        """
        self._num_children += 1
        fork = copy.copy(self)
        fork.seq_id = seq_id
        fork.fork = self.group.join(fork)
        fork.lineage = (*self.lineage, self._num_children)
        fork._num_children = 0
        fork.transcript, begin = self.transcript.fork()
        fork.progress = self.progress.fork()
        fork.guest = copy.copy(self.guest)
        fork.sampler = self.sampler.fork(self.sampling.seed, fork.lineage)
        fork.clock = self.clock.fork()
        fork.order = (fork.clock.due_at, self.group.request_id, seq_id)
        return fork, begin

    @property
    def tokens(self) -> list[TokenId]:
        """Prompt and output as the model sees them. Read only."""
        return self.transcript.tokens

    @property
    def room(self) -> int:
        """Tokens that may still be appended; 0 or less at the limit."""
        transcript = self.transcript
        return transcript.limit - len(transcript.tokens)

    @property
    def suspended(self) -> bool:
        """The guest waits, so the sequence computes nothing."""
        return self.guest.suspended

    @property
    def num_pending(self) -> int:
        """Tokens without computed keys and values. At least 1 between steps: logits come from the last token."""
        return len(self.transcript.tokens) - self.progress.num_computed

    @property
    def num_reusable(self) -> int:
        """Tokens at the beginning that need not be computed if cached.

        The last token must be computed for the logits, and so must the tokens before prompt tokens without a score, and
        the tokens whose states are pooled.
        """
        if self.pooling is not None:
            return self.pooling.num_reusable
        scores = self.sampler.prompt_scores
        return (len(self.transcript.tokens) if scores is None else scores.next_index) - 1

    def end(self, reason: FinishReason, error: AiciError | None = None) -> None:
        """Mark the sequence to end before its next step. The first reason stands."""
        if self.ending is None:
            self.ending = Ending(reason, error)

    def append(self, token: Token, *, kept_as: TokenId | None = None) -> str:
        """Append an output token. Return the text that the stream gains. A complete stop string ends the sequence.

        `kept_as`: the token for the model, if the model shall see a different token.
        """
        text = self.transcript.append(token, kept_as)
        self.group.count(token.origin)
        if self.transcript.stop is not None:
            self.end(FinishReason.STOP_STRING)
        return text

    def remove(self, num_tokens: int) -> None:
        """Forget the last tokens, of the prompt too once the output is used up.

        At least one token must remain, or be appended next.
        """
        self.transcript.remove(num_tokens)
        self.progress.forget_beyond(len(self.transcript.tokens))
