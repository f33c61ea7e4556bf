"""The conversation with the guests of all controlled sequences, step by step:

    round        what was appended -> who stops, who is suspended, which tokens are forced
    ask          these sequences are about to be sampled
    answers      their masks and splices, after the forward pass

A guest that has long said nothing in a round but to go on is *calm*: no round waits for it. What was appended goes to
it with `ask`, the forward pass begins, and it computes its mask at once. If it says something else after all, its
sequence is not sampled in this step: what it said is done after the pass, as if it had come before the next one.

Facts: the AICI runtime protocol with pre/mid/post callbacks. A guest that fails ends its own sequence only.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from aici_base.errors import AiciError, ControllerError, UsageError
from aici_base.ids import SeqId, TokenId
from aici_engine.control.runtime import ControllerRuntime
from aici_engine.events import FinishReason
from aici_engine.output import Output
from aici_engine.sequences.sequence import Sequence
from aici_runtime.wire import MidOp, PostOp, Pre, PreOp, SeqResult, Splice, Turn

_GO_ON = Pre(suspend=False, num_forks=1, ff_tokens=())

MAX_SUSPENDED_ROUNDS = 10
"""After so many rounds in a row in which all forks of a request were suspended it is deadlocked: nobody but they could
wake it."""


MAX_FORKS_IN_ALL = 1024
"""Sequences of one request, those that have ended and those that the runtime refused included: each is listed."""


@dataclass(frozen=True, slots=True)
class GuestAnswer:
    """For one sequence: either a splice, or the bits of its mask."""

    splice: Splice | None
    bits: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Sent:
    """A turn without its answer. `asked`: for post and pre; `fresh`: for pre; `to_sample`: for mid."""

    posts: list[PostOp]
    fresh: list[Sequence]
    asked: dict[SeqId, Sequence]
    to_sample: list[Sequence]
    num_freed: int


@dataclass(frozen=True, slots=True)
class NewFork:
    """A fork that came into being. `begin`: what its stream begins with."""

    parent: Sequence
    child: Sequence
    begin: str


class GuestSession:
    """Used by the engine's thread alone. RuntimeDiedError passes through every method that talks to the runtime.

    A guest is a process, so at most `max_guests` live or start at a time; further ones start when others are dropped.
    Forks are not among these: the runtime bounds them. `new_id` makes their sequences' ids. A guest is calm after
    `calm_rounds` rounds, and after twice as many whenever it was not calm after all.
    """

    def __init__(
        self,
        runtime: ControllerRuntime,
        output: Output,
        *,
        num_logits: int,
        max_guests: int,
        eos_tokens: frozenset[TokenId],
        new_id: Callable[[], SeqId],
        calm_rounds: int,
    ) -> None:
        self._runtime = runtime
        self._output = output
        self._num_logits = num_logits
        self._max_guests = max_guests
        self._eos_tokens = eos_tokens
        self._new_id = new_id
        self._calm_rounds = calm_rounds
        self._to_start: deque[tuple[Sequence, Callable[[BaseException | None], None]]] = deque()
        self._started: set[SeqId] = set()
        self._bound: dict[SeqId, Sequence] = {}
        self._posts: list[PostOp] = []
        self._freed: list[SeqId] = []
        self._calm: dict[SeqId, Sequence] = {}
        """Those for which this step's round does not wait."""
        self._heard: set[SeqId] = set()
        """Those that were not calm after all, and have said already what the next round would ask."""
        self._sent: _Sent | None = None

    def start(self, seq: Sequence, done: Callable[[BaseException | None], None]) -> None:
        """Instantiate the guest, in order; `done` is called in the end, on any thread."""
        insort(self._to_start, (seq, done), key=lambda start: start[0].order)
        self._start_next()

    def drop(self, seq: Sequence) -> None:
        """The sequence has ended; its guest goes with the next round, or now if it was never bound."""
        if seq.controller is None:
            return
        self._started.discard(seq.seq_id)
        if self._bound.pop(seq.seq_id, None) is not None:
            self._freed.append(seq.seq_id)
            self._calm.pop(seq.seq_id, None)
            self._posts = [op for op in self._posts if op.id != seq.seq_id]
        else:
            self._runtime.discard(seq.req_id)
            self._start_next()

    def _start_next(self) -> None:
        while self._to_start and len(self._started) + len(self._freed) < self._max_guests:
            seq, done = self._to_start.popleft()
            assert seq.controller is not None
            if seq.ending is not None:
                continue
            self._started.add(seq.seq_id)
            try:
                future = self._runtime.instantiate(
                    req_id=seq.req_id,
                    prompt=list(seq.tokens),
                    module_id=seq.controller.module_id,
                    module_arg=seq.controller.argument,
                    seed=(seq.sampling.seed or 0) % 2**64,
                )
            except AiciError as error:
                done(error)
            except TypeError as error:
                # It is the caller's: an engine must not fall over an object that JSON cannot say.
                done(UsageError(f"the controller's argument cannot be written as JSON: {error}"))
            else:
                future.add_done_callback(lambda future, done=done: done(_plain(future.exception())))  # type: ignore[misc]

    def use(self, runtime: ControllerRuntime) -> None:
        """From now on; nothing may be left of what the last one had."""
        self._runtime = runtime

    def lost(self) -> None:
        """The runtime died: there is no guest any more."""
        self._to_start.clear()
        self._started.clear()
        self._bound.clear()
        self._posts.clear()
        self._freed.clear()
        self._calm.clear()
        self._heard.clear()
        self._sent = None

    def round(self, running: Seq[Sequence]) -> None:
        """Post, then pre, of every guest that is not calm; those of `running` that were never bound are bound first.

        Afterwards each of their sequences has its forced tokens, knows if it is suspended, or has a verdict.
        """
        fresh = [seq for seq in running if seq.controller is not None and not seq.guest.bound]
        others = {seq_id: seq for seq_id, seq in self._bound.items() if seq_id not in self._heard}
        self._heard.clear()
        self._calm = {seq_id: seq for seq_id, seq in others.items() if self._is_calm(seq)}
        asked = {seq_id: seq for seq_id, seq in others.items() if seq_id not in self._calm}
        # Who is to be freed can wait for those that are asked later.
        if asked or fresh or (self._freed and not self._calm):
            self._send(asked, fresh=fresh)
            self._receive()

    def ask(self, seqs: Seq[Sequence]) -> list[NewFork]:
        """`seqs` are about to be sampled; those that want to fork do so, and their forks are asked with them.

        If any, `answers` must follow, whatever becomes of the forward pass.
        """
        new = {seq.seq_id: [self._new_id() for _ in range(seq.guest.num_branches - 1)] for seq in seqs}
        if not (seqs or self._calm):
            return []
        ops = [op for seq in seqs for op in (MidOp(seq.seq_id), *(MidOp(i, seq.seq_id) for i in new[seq.seq_id]))]
        sent = self._send(self._calm, ops=ops)
        # Only now: to a message that was refused comes no answer, and nobody was forked.
        new_forks = []
        for seq in seqs:
            seq.guest.num_branches = 1
            forks = [NewFork(seq, *seq.clone(seq_id)) for seq_id in new[seq.seq_id]]
            sent.to_sample.extend([seq, *(fork.child for fork in forks)])
            self._bound |= {fork.child.seq_id: fork.child for fork in forks}
            new_forks += forks
        return new_forks

    def answers(self) -> dict[SeqId, GuestAnswer]:
        """One for each sequence asked, but those that have a verdict now, and those of calm guests that wanted
        something else than to go on. Bits are valid until the next `round`.

        A fork that the runtime refuses has a verdict: its guest does not exist, but its id is taken until it is freed.
        """
        if self._sent is None:
            return {}
        sent, turn = self._receive()
        answers: dict[SeqId, GuestAnswer] = {}
        if not sent.to_sample:
            return answers
        rows = np.frombuffer(self._runtime.mask_rows(len(sent.to_sample)), np.uint8).reshape(len(sent.to_sample), -1)
        for seq, bits in zip(sent.to_sample, rows, strict=True):
            result = turn.mid.get(seq.seq_id)
            if result is None and seq.seq_id in sent.asked:
                self._heard.add(seq.seq_id)
                continue
            if self._noted(seq, result) and result is not None:
                answers[seq.seq_id] = GuestAnswer(result.result, bits)
        return answers

    def _is_calm(self, seq: Sequence) -> bool:
        """Forks share variables, so they are all asked before any of them goes on; and who has no room ends now."""
        return seq.guest.num_calm >= seq.guest.calm_rounds and len(seq.group.members) == 1 and seq.room > 0

    def _send(self, asked: Mapping[SeqId, Sequence], *, fresh: Seq[Sequence] = (), ops: Seq[MidOp] = ()) -> _Sent:
        sent = _Sent([op for op in self._posts if op.id in asked], list(fresh), dict(asked), [], len(self._freed))
        self._posts = [op for op in self._posts if op.id not in asked]
        self._runtime.send_turn(
            post_ops=sent.posts,
            pre_ops=[PreOp(seq.seq_id, seq.req_id) for seq in fresh],
            asked=list(asked),
            ops=ops,
            freed=list(self._freed),
        )
        self._sent = sent
        return sent

    def _receive(self) -> tuple[_Sent, Turn]:
        """Do what post and pre say."""
        assert self._sent is not None
        sent, self._sent = self._sent, None
        turn = self._runtime.recv_turn()
        # Only now: had the message been refused, nobody would be free, and nobody bound.
        del self._freed[: sent.num_freed]
        for seq in sent.fresh:
            self._bound[seq.seq_id] = seq
            seq.guest.bound = True
            seq.guest.calm_rounds = self._calm_rounds
        self._start_next()
        # Most say nothing but to go on, and are heard of by their masks alone.
        silent = {seq_id: seq for seq_id, seq in sent.asked.items() if seq_id in turn.mid and seq_id not in turn.pre}
        for seq in silent.values():
            seq.guest.num_calm += 1
        for op in sent.posts:
            if op.id in silent:
                continue
            seq = self._bound[op.id]
            post = turn.post.get(op.id)
            if self._noted(seq, post) and post is not None and post.result is not None and post.result.stop:
                seq.end(_stopped(seq))
        seqs = [*(seq for seq_id, seq in sent.asked.items() if seq_id not in silent), *sent.fresh]
        for seq in seqs:
            pre = turn.pre.get(seq.seq_id)
            # A guest that has just stopped is asked all the same: what it would force comes too late.
            if self._noted(seq, pre) and seq.ending is None and pre is not None and pre.result is not None:
                self._apply_pre(seq, pre.result)
            # Who is late may have ended it: what of both it is must not be a matter of time.
            if seq.room <= 0 and not seq.guest.late:
                seq.end(FinishReason.LENGTH)
        for group in {seq.group.request_id: seq.group for seq in seqs}.values():
            if group.count_round() > MAX_SUSPENDED_ROUNDS:
                group.end(FinishReason.DEADLOCK)
        return sent, turn

    def sampled(self, seq: Sequence, token: TokenId, *, is_choice: bool = True) -> None:
        """Tell the guest of a sampled token in the next round. `is_choice`: its mask allowed other tokens too.

        An EOS ends the text in the name of the model only if other tokens were allowed.
        """
        seq.guest.last_was_eos = token in self._eos_tokens and is_choice
        if token in self._eos_tokens:
            # It will most likely stop.
            seq.guest.num_calm = 0
        self._posts.append(PostOp(seq.seq_id, [token]))

    def splice(self, seq: Sequence, splice: Splice) -> None:
        """Do what the guest wants instead of sampling, and tell it. ControllerError if that cannot be done.

        What it takes back and puts in place again was never gone: neither are its keys and values, nor its text.
        """
        self._check(splice.ff_tokens)
        if splice.late:
            seq.guest.num_calm = 0
            return
        # It counts the token that would have been sampled now, and that never was appended.
        num_removed = max(0, splice.backtrack - 1)
        if num_removed > len(seq.tokens) or len(seq.tokens) - num_removed + len(splice.ff_tokens) == 0:
            raise ControllerError(f"the controller removed {num_removed} tokens of a sequence of {len(seq.tokens)}")
        num_kept = seq.transcript.num_kept(num_removed, splice.ff_tokens, self._eos_tokens)
        new = splice.ff_tokens[num_kept:]
        self._output.remove(seq, num_removed - num_kept)
        self._output.forced(seq, new)
        if num_removed > num_kept or new:
            seq.guest.last_was_eos = False
        else:
            seq.group.count_idle_step()
        self._posts.append(PostOp(seq.seq_id, list(splice.ff_tokens), splice.backtrack))

    def _apply_pre(self, seq: Sequence, pre: Pre) -> None:
        seq.guest.num_calm = seq.guest.num_calm + 1 if pre == _GO_ON else 0
        if pre != _GO_ON and seq.seq_id in self._calm:
            # That cost it a step, which what it wants could have had a part of.
            seq.guest.calm_rounds *= 2
        try:
            self._check(pre.ff_tokens)
        except ControllerError as error:
            seq.end(FinishReason.FAIL, error)
            return
        # The runtime has told the guest of these itself.
        self._output.forced(seq, pre.ff_tokens)
        if pre.ff_tokens:
            seq.guest.last_was_eos = False
        if pre.num_forks == 0:
            seq.end(_stopped(seq))
        seq.guest.suspended, seq.guest.late = pre.suspend, pre.late
        if seq.group.num_forks + pre.num_forks > MAX_FORKS_IN_ALL:
            why = f"the controller forked into more than {MAX_FORKS_IN_ALL} sequences in all"
            seq.group.end(FinishReason.FAIL, ControllerError(why))
        # If it is not sampled in this step, its guest is asked again, and says so again.
        seq.guest.num_branches = max(1, pre.num_forks)

    def _check(self, tokens: Seq[TokenId]) -> None:
        for token in tokens:
            if not 0 <= token < self._num_logits:
                raise ControllerError(f"the controller forced token {token}: the model has {self._num_logits}")

    def _noted(self, seq: Sequence, result: SeqResult[Any] | None) -> bool:
        """Report logs and variables; False if the guest failed, and then the sequence has its verdict."""
        error: AiciError | None = None
        if result is None:
            error = ControllerError("the controller did not answer")
        else:
            self._output.controlled(seq, result.logs, result.storage)
            if result.error:
                error = ControllerError(_plain_text(result.error))
        if error is not None:
            seq.end(FinishReason.FAIL, error)
        return error is None


def _stopped(seq: Sequence) -> FinishReason:
    return FinishReason.EOS if seq.guest.last_was_eos else FinishReason.STOP


def _plain(error: BaseException | None) -> BaseException | None:
    return ControllerError(_plain_text(error.message), hint=error.hint) if isinstance(error, ControllerError) else error


def _plain_text(error: str) -> str:
    """Without the runtime's mark of a guest that ended itself; the log keeps it."""
    return error.removesuffix("*** aici_host_stop()").rstrip()
