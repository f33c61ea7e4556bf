"""The conversation with the guests of all controlled sequences, in three parts a step:

    round        tell guests of appended tokens; learn which sequences stop, are suspended, or have forced tokens
    ask          name the sequences about to be sampled, before the forward pass
    answers      read masks and splices, after the forward pass

A guest is *calm* after a number of rounds in which the guest only went on. No round waits for a calm guest: `ask` tells
the guest of appended tokens, and the guest computes its mask during the forward pass. If a calm guest wants more than
to go on, its sequence is not sampled in this step, and the wish is carried out after the pass, as the next round would.

If all guests are calm, `ask_early` asks the guests for the next step as soon as the tokens of a step are chosen. The
guests then compute while the engine's thread reports tokens and plans, and other cores are idle, rather than beside the
forward pass. If the next step is not the expected one, the answers are kept.

Several steps may be in flight. `answers` of a step comes before the next `round`, because the runtime answers a message
before the next message. A sequence that waits for a step's logits is *held*: its request is left out of rounds. If a
step is lost, `keep` keeps its answers: a guest never computes twice for one token.

The conversation follows the AICI runtime protocol with pre, mid and post callbacks. `GuestWishes` carries out what the
answers say.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aici_base.ids import SeqId, TokenId
from aici_engine.control.calm_record import CalmRecord, is_calm
from aici_engine.control.guest_accounts import SHORT_S, GuestAccounts
from aici_engine.control.guest_starts import GuestStarts
from aici_engine.control.guest_time import GuestTime
from aici_engine.control.guest_wishes import GuestWishes, stopped
from aici_engine.control.runtime import ControllerRuntime
from aici_engine.event_output import EventOutput
from aici_engine.events import FinishReason
from aici_engine.sequences.group import SAMPLED_FUEL, SequenceGroup
from aici_engine.sequences.sequence import Sequence
from aici_runtime.wire import MidOp, Patience, PostOp, PreOp, SeqResult, Splice, Turn

MAX_SUSPENDED_ROUNDS = 10
"""A request is deadlocked if all its forks were suspended in more rounds in a row: only a fork of the request could
wake a fork."""


class GuestAnswer(NamedTuple):
    """The answer for one sequence: a splice, or `bits`, the mask (least significant bit first, 1: allowed).

    `took_s`: seconds in which the guest computed.
    """

    splice: Splice | None
    bits: npt.NDArray[np.uint8]
    took_s: float = 0.0

    def copy(self) -> "GuestAnswer":
        """Return an answer with bits of its own."""
        return self._replace(bits=self.bits.copy())


@dataclass(slots=True)
class _Sent:
    """A turn that the runtime has not answered. `asked` run post and pre, `fresh` run pre, `to_sample` run mid.
    `is_calm`: sent with `send_calm`."""

    posts: list[PostOp]
    fresh: list[Sequence]
    asked: dict[SeqId, Sequence]
    to_sample: list[Sequence]
    num_freed: int
    patience: Patience | None
    is_calm: bool = False


@dataclass(frozen=True, slots=True)
class NewFork:
    """A new fork. `begin`: the text at the beginning of the fork's stream."""

    parent: Sequence
    child: Sequence
    begin: str


class GuestSession:
    """Used by the engine's thread alone. Methods that talk to the runtime may raise RuntimeDiedError.

    `max_guests`, `more_guests`: see `GuestStarts`. `new_id` makes the ids of forks. A guest is calm after `calm_rounds`
    rounds, or sooner (`CalmRecord`); the number doubles for a guest that was wrongly taken for calm.
    """

    def __init__(
        self,
        runtime: ControllerRuntime,
        output: EventOutput,
        *,
        num_logits: int,
        max_guests: int,
        more_guests: int = 0,
        eos_tokens: frozenset[TokenId],
        new_id: Callable[[], SeqId],
        calm_rounds: int,
        guest_time: GuestTime | None = None,
    ) -> None:
        self._runtime = runtime
        self._engine_number = runtime.add_engine()
        self._wishes = GuestWishes(output, num_logits=num_logits, eos_tokens=eos_tokens)
        self._eos_tokens = eos_tokens
        self._new_id = new_id
        self._calm_record = CalmRecord(calm_rounds)
        self._starts = GuestStarts(max_guests=max_guests, more_guests=more_guests)
        self._bound: dict[SeqId, Sequence] = {}
        self._posts: list[PostOp] = []
        self._freed: list[SeqId] = []
        self._calm: dict[SeqId, Sequence] = {}
        """The calm guests of this step."""
        self._heard: set[SeqId] = set()
        """Guests that the next round need not ask: an answer had all of it already. Mostly guests wrongly taken for
        calm."""
        self._kept: dict[SeqId, GuestAnswer] = {}
        """Answers of lost steps, by sequence."""
        self._used: dict[SeqId, GuestAnswer] = {}
        """The kept answers that the next `answers` returns."""
        self._sent: _Sent | None = None
        self._early: dict[SeqId, Sequence] | None = None
        """The guests that were asked for the next step already."""
        self._due: set[SeqId] | None = None
        """The sequences of this step, if their guests were asked early."""
        self._accounts = GuestAccounts(guest_time)
        self.guest_time = self._accounts.time

    def start(self, seq: Sequence, done: Callable[[BaseException | None], None]) -> None:
        """Start the guest: owners in turn, and of an owner older sequences first. `done` is called once, on any thread,
        with the error if one occurred."""
        self._starts.add(seq, done)
        self._start_next()

    def drop(self, seq: Sequence) -> None:
        """The sequence has ended. A bound guest is freed with the next round, an unbound guest at once."""
        if seq.controller is None:
            return
        self._starts.remove(seq.seq_id)
        if self._bound.pop(seq.seq_id, None) is not None:
            self._calm_record.add(seq)
            self._freed.append(seq.seq_id)
            self._calm.pop(seq.seq_id, None)
            self._kept.pop(seq.seq_id, None)
            self._heard.discard(seq.seq_id)
            self._posts = [op for op in self._posts if op.id != seq.seq_id]
        else:
            self._runtime.discard(self._req_id(seq))
            self._start_next()

    def started(self, seq: Sequence) -> None:
        """The guest has started: the next `round` or `bind` with the sequence binds the guest."""
        seq.guest.starting = seq.guest.suspended = False

    def wait_for_start(self, seq: Sequence) -> None:
        """The prompt is computed, and the guest still starts: the sequence computes nothing until `started`."""
        seq.guest.suspended = True

    def failed_to_start(self, seq: Sequence) -> None:
        """The guest did not start. The processor time of its process is unknown: the whole time counts."""
        if (begun_at := self._starts.begun_at(seq.seq_id)) is not None:
            self.guest_time.add({seq.share: time.monotonic() - begun_at})

    def _start_next(self) -> None:
        # A guest that is to be freed keeps its place until then.
        self._starts.start(self._runtime, req_id=self._req_id, num_leaving=len(self._freed))

    def _req_id(self, seq: Sequence) -> str:
        """Return the name of the request at the runtime. Requests of other engines have other names."""
        return f"e{self._engine_number}-r{seq.group.request_id}"

    def use(self, runtime: ControllerRuntime) -> None:
        """Talk to another runtime. `lost` was called for the previous runtime."""
        self._runtime = runtime
        self._engine_number = runtime.add_engine()

    def lost(self) -> None:
        """The runtime has died, and all guests with it."""
        self._starts.clear()
        self._bound.clear()
        self._accounts.clear()
        self._posts.clear()
        self._freed.clear()
        self._calm.clear()
        self._heard.clear()
        self._kept.clear()
        self._used.clear()
        self._sent = self._early = self._due = None

    def round(self, running: Seq[Sequence], left_out: AbstractSet[SequenceGroup] = frozenset()) -> None:
        """Ask every guest, except calm guests, for post and pre. First bind the guests of new sequences in `running`.
        A few guests among many calm ones are not asked: the round would cost more than it saves.

        Requests of `left_out` are not asked, nor sequences with a kept answer. Afterwards the sequences have their
        forced tokens, know whether they are suspended, and are marked if they end.
        """
        fresh = [seq for seq in running if seq.controller is not None and not (seq.guest.bound or seq.guest.starting)]
        if self._early is not None:
            # Once the last guest is gone, nothing follows the message: its answer is read, and guests are freed, now.
            if self._early and not fresh and not left_out and self._early.keys() == self._bound.keys():
                return
            self._settle()
        others = self._bound
        if fresh or others:
            self._accounts.patience.begin_step(running)
        if left_out or self._kept:
            fresh = [seq for seq in fresh if seq.group not in left_out]
            others = {
                seq_id: seq
                for seq_id, seq in self._bound.items()
                if seq.group not in left_out and seq_id not in self._kept
            }
        if self._heard and (heard := self._heard & others.keys()):
            self._heard -= heard
            others = {seq_id: seq for seq_id, seq in others.items() if seq_id not in heard}
        asked = {seq_id: seq for seq_id, seq in others.items() if not is_calm(seq)}
        if asked and not fresh and self._calm_record.are_too_few(asked.values(), len(self._bound)):
            asked = {}
        self._calm = {seq_id: seq for seq_id, seq in others.items() if seq_id not in asked} if asked else {**others}
        # Guests to be freed can wait for the message of `ask`.
        if asked or fresh or (self._freed and not self._calm):
            self._send(asked, fresh=fresh)
            self._receive()

    def bind(self, fresh: Seq[Sequence], free_s: float = 0.0) -> dict[SeqId, GuestAnswer]:
        """Bind the guests of new sequences, and ask these guests alone, as `round` and `ask` do. Return their masks.

        A guest that wants more than to go on has no answer. Call after `answers`. `free_s`: the time that the forward
        pass still takes, as far as is known; 0 after the pass.
        """
        ops = [MidOp(seq.seq_id) for seq in fresh]
        sent = self._send({}, fresh=fresh, ops=ops, to_sample=fresh, free_s=free_s)
        sent.to_sample.extend(fresh)
        return self.answers()

    def ask(self, seqs: Seq[Sequence], expected_s: float = 0.0) -> list[NewFork]:
        """Ask for the masks of `seqs`, which are about to be sampled. Return the forks of those that want to fork.

        `expected_s`: the time that the forward pass of the step takes, as far as is known.

        The forks are asked too. A sequence with a kept answer is not asked again. `answers` must follow, even if the
        forward pass fails.
        """
        if self._early is not None:
            self._early, self._due = None, {seq.seq_id for seq in seqs}
            return []
        if self._kept:
            self._used = {seq.seq_id: self._kept.pop(seq.seq_id) for seq in seqs if seq.seq_id in self._kept}
            seqs = [seq for seq in seqs if seq.seq_id not in self._used]
        if not (seqs or self._calm):
            return []
        if usual := self._usual_turn(seqs):
            self._send_usual(usual, expected_s)
            return []
        new = {
            seq.seq_id: [self._new_id() for _ in range(seq.guest.num_branches - 1)]
            for seq in seqs
            if seq.guest.num_branches > 1
        }
        ops = [MidOp(seq.seq_id) for seq in seqs]
        if new:
            ops = [op for seq in seqs for op in (MidOp(seq.seq_id), *_clones(seq.seq_id, new.get(seq.seq_id, ())))]
        sent = self._send(self._calm, ops=ops, to_sample=seqs, free_s=expected_s)
        if not new:
            sent.to_sample.extend(seqs)
            return []
        # Only after the message was sent: a refused message has no answer and forks nothing.
        new_forks = []
        for seq in seqs:
            seq.guest.num_branches = 1
            forks = [NewFork(seq, *seq.clone(seq_id)) for seq_id in new.get(seq.seq_id, ())]
            sent.to_sample.extend([seq, *(fork.child for fork in forks)])
            self._bound |= {fork.child.seq_id: fork.child for fork in forks}
            for fork in forks:
                self._accounts.add(fork.child)
            new_forks += forks
        return new_forks

    def early_turn(self, *, is_appended: bool, max_fuel: int) -> dict[SeqId, Sequence]:
        """Return the sequences that `ask_early` may ask: all, if each guest is calm, but for too few, and was told of a
        token or a splice. Else none.

        `is_appended`: whether the tokens that guests were told of are appended. If not, the result is empty if the
        token of a sequence may be the last: by its room, by a stop string, or because the request then costs more than
        `max_fuel`. A stop string or the fuel ends a sequence before its guest hears of the token.
        """
        # Every step passes here, with cold caches: few calls.
        bound, posts = self._bound, self._posts
        if not posts or len(posts) != len(bound) or self._sent is not None or self._kept or self._heard:
            return {}
        least_room = 1 if is_appended else 2
        calm: dict[SeqId, Sequence] = {}
        wary = []
        for op in posts:
            seq = bound.get(op.id)
            if seq is None or seq.ending is not None:
                return {}
            transcript, guest, group = seq.transcript, seq.guest, seq.group
            if transcript.limit - len(transcript.tokens) < least_room:
                return {}
            if not is_appended and (seq.sampling.stop or group.fuel + SAMPLED_FUEL > max_fuel):
                return {}
            if guest.num_calm < guest.calm_rounds or len(group.members) != 1:
                wary.append(seq)
            calm[op.id] = seq
        return calm if len(calm) == len(bound) and (not wary or self._calm_record.are_too_few(wary, len(bound))) else {}

    def ask_early(self, calm: dict[SeqId, Sequence], running: Seq[Sequence], expected_s: float) -> None:
        """Ask for the masks of the next step. `calm`: of `early_turn`. `expected_s`: see `ask`."""
        self._accounts.patience.begin_step(running)
        if self._are_usual(self._posts):
            self._send_usual(calm, expected_s)
        else:
            asked = list(calm.values())
            sent = self._send(calm, ops=[MidOp(seq_id) for seq_id in calm], to_sample=asked, free_s=expected_s)
            sent.to_sample.extend(asked)
        self._calm = self._early = calm  # one dict: `drop` takes a sequence out of both

    def _usual_turn(self, seqs: Seq[Sequence]) -> dict[SeqId, Sequence]:
        """Return `seqs` in the order of the posts, if these are all calm guests, and each was told of one token. Else
        return nothing."""
        calm, posts = self._calm, self._posts
        if not len(seqs) == len(calm) == len(posts) or not self._are_usual(posts):
            return {}
        if any(seq.seq_id not in calm or seq.guest.num_branches != 1 for seq in seqs):
            return {}
        turn = {op.id: calm[op.id] for op in posts if op.id in calm}
        return turn if len(turn) == len(calm) else {}

    def _are_usual(self, posts: Seq[PostOp]) -> bool:
        """Return whether `send_calm` can tell the guests of these posts."""
        for op in posts:  # no generator: every step passes here, with cold caches
            if op.backtrack or len(op.tokens) != 1:
                return False
        return not self._freed

    def _send_usual(self, calm: Mapping[SeqId, Sequence], expected_s: float) -> None:
        """Tell each guest of its token, and ask each guest for a mask. `calm`: in the order of the posts."""
        seqs = list(calm.values())
        patience = self._accounts.patience.limits(seqs, expected_s)
        self._runtime.send_calm(list(calm), [op.tokens[0] for op in self._posts], patience)
        self._sent = _Sent(self._posts, [], dict(calm), seqs, 0, patience, is_calm=True)
        self._posts = []

    def _settle(self) -> None:
        """Receive the answers that were asked for early, and keep them until their sequences are in a step."""
        self._early, self._calm = None, {}
        self.keep({seq_id: answer.copy() for seq_id, answer in self.answers().items()})

    def answers(self) -> dict[SeqId, GuestAnswer]:
        """Return the answers to the last `ask`, by sequence. Bits are valid until the next message to the runtime.

        A sequence has no answer if its guest failed (the sequence is marked to end), or if its guest was taken for calm
        and wanted more than to go on. A fork refused by the runtime counts as failed; its id stays taken until freed.
        """
        answers, self._used = self._used, {}
        due, self._due = self._due, None
        sent = self._sent
        if sent is None:
            return answers
        began = time.monotonic()
        if (micros := self._receive_calm(sent, began)) is not None:
            for seq, bits, each in zip(sent.to_sample, self._rows(sent), micros, strict=True):
                if seq.seq_id in self._bound:
                    seq.guest.went_on()
                    answers[seq.seq_id] = GuestAnswer(None, bits, each / 1e6)
        else:
            turn = self._receive(began)
            if not sent.to_sample:
                return answers
            for seq, bits in zip(sent.to_sample, self._rows(sent), strict=True):
                if seq.seq_id not in self._bound:
                    continue
                result = turn.mid.get(seq.seq_id)
                if result is None and (seq.seq_id in sent.asked or seq in sent.fresh):
                    self._heard.add(seq.seq_id)
                    continue
                # Nearly all guests answer, log nothing and write no variable.
                is_usual = result is not None and not (result.error or result.logs or result.storage)
                if (is_usual or self._wishes.noted(seq, result)) and result is not None:
                    answers[seq.seq_id] = GuestAnswer(result.result, bits, result.micros / 1e6)
        # A second `ask` before the next round must not ask calm guests again.
        self._calm = {}
        if due is not None and (others := answers.keys() - due):
            self.keep({seq_id: answers.pop(seq_id).copy() for seq_id in others})
        return answers

    def hear(self, seq: Sequence) -> None:
        """The last `round` was held for this sequence in the place of the next round, which leaves the sequence out."""
        self._heard.add(seq.seq_id)

    def keep(self, answers: Mapping[SeqId, GuestAnswer]) -> None:
        """Keep the answers of a lost step, with bits of their own, until the sequences are asked again."""
        self._kept |= {seq_id: answer for seq_id, answer in answers.items() if seq_id in self._bound}

    def _send(
        self,
        asked: Mapping[SeqId, Sequence],
        *,
        fresh: Seq[Sequence] = (),
        ops: Seq[MidOp] = (),
        to_sample: Seq[Sequence] = (),
        free_s: float = 0.0,
    ) -> _Sent:
        patience = self._accounts.patience.limits([*asked.values(), *fresh, *to_sample], free_s)
        posts = [op for op in self._posts if op.id in asked]
        sent = _Sent(posts, list(fresh), dict(asked), [], len(self._freed), patience)
        self._posts = [op for op in self._posts if op.id not in asked] if len(posts) < len(self._posts) else []
        self._runtime.send_turn(
            post_ops=sent.posts,
            pre_ops=[PreOp(seq.seq_id, self._req_id(seq)) for seq in fresh],
            asked=list(asked),
            ops=ops,
            freed=list(self._freed),
            patience=patience,
        )
        self._sent = sent
        return sent

    def _rows(self, sent: _Sent) -> npt.NDArray[np.uint8]:
        """Return the masks for `sent.to_sample`."""
        return np.asarray(self._runtime.mask_rows(len(sent.to_sample)))

    def _receive_calm(self, sent: _Sent, began: float) -> list[int] | None:
        """Wait for the answer to a calm turn. Return the microseconds of each guest; None if `_receive` must follow."""
        micros = self._runtime.recv_calm() if sent.is_calm else None
        if micros is None:
            return None
        self._sent = None
        if sent.patience is not None and (waited_s := time.monotonic() - began) >= SHORT_S:
            mid: dict[SeqId, SeqResult[Splice]] = {
                seq.seq_id: SeqResult(None, "", (), "", each) for seq, each in zip(sent.to_sample, micros, strict=True)
            }
            self._accounts.charge(sent.to_sample, sent.patience, Turn({}, {}, mid), waited_s)
        return micros

    def _receive(self, began: float | None = None) -> Turn:
        """Wait for the answer, and apply the results of post and pre. `began`: when the wait began, if not now."""
        assert self._sent is not None
        sent, self._sent = self._sent, None
        began = began or time.monotonic()
        turn = self._runtime.recv_turn()
        if sent.patience is not None:
            seqs = (*sent.asked.values(), *sent.fresh, *sent.to_sample)
            self._accounts.charge(seqs, sent.patience, turn, time.monotonic() - began)
        if turn.cpu_s:
            self._accounts.count_time(turn.cpu_s, sent.fresh)
        # Only after the answer: a refused message frees and binds no guest.
        self._accounts.remove(self._freed[: sent.num_freed])
        del self._freed[: sent.num_freed]
        for seq in sent.fresh:
            self._bound[seq.seq_id] = seq
            self._accounts.add(seq)
            seq.guest.bound = True
            seq.guest.calm_rounds = self._calm_record.rounds_until_calm(seq)
        self._start_next()
        # Most guests just go on. Such a guest has a mask in the answer, and no result of pre.
        # The sequence of a calm guest may have ended since the message was sent.
        asked: dict[SeqId, Sequence] = {}
        for seq in (*sent.asked.values(), *sent.fresh):
            if seq.seq_id in self._bound:
                if seq.seq_id in turn.mid and seq.seq_id not in turn.pre:
                    seq.guest.went_on()
                else:
                    asked[seq.seq_id] = seq
        self._apply(sent, turn, asked)
        return turn

    def _apply(self, sent: _Sent, turn: Turn, asked: Mapping[SeqId, Sequence]) -> None:
        """Apply the results of post and pre for `asked`."""
        for op in sent.posts if asked else ():
            if op.id not in asked:
                continue
            seq = asked[op.id]
            post = turn.post.get(op.id)
            if self._wishes.noted(seq, post) and post is not None and post.result is not None and post.result.stop:
                if not seq.guest.last_was_eos:  # a guest told of an EOS is asked first
                    seq.guest.wished()
                seq.end(stopped(seq))
        for seq in asked.values():
            pre = turn.pre.get(seq.seq_id)
            # A guest that stopped in post runs pre all the same; tokens forced by that pre are dropped.
            if self._wishes.noted(seq, pre) and seq.ending is None and pre is not None and pre.result is not None:
                self._wishes.apply_pre(seq, pre.result, was_calm=seq.seq_id in self._calm and is_calm(seq))
            # A late guest may be about to stop. The reason of the end must not depend on timing.
            if seq.room <= 0 and not seq.guest.late:
                seq.end(FinishReason.LENGTH)
        for group in {seq.group.request_id: seq.group for seq in asked.values()}.values():
            if group.count_round() > MAX_SUSPENDED_ROUNDS:
                group.end(FinishReason.DEADLOCK)

    def slowed(self, running: Seq[Sequence]) -> frozenset[SequenceGroup]:
        """Return those requests of `running` that sit out the next step, because their owner's budget of processor time
        is used up."""
        return self._accounts.slowed(seq for seq in running if seq.controller is not None)

    def sampled(self, seq: Sequence, token: TokenId, *, is_choice: bool = True) -> None:
        """Tell the guest of a sampled token in the next round. `is_choice`: its mask allowed other tokens too.

        An EOS ends the text in the name of the model only if other tokens were allowed.
        """
        seq.guest.last_was_eos = token in self._eos_tokens and is_choice
        if token in self._eos_tokens:
            # The guest will most likely stop.
            seq.guest.num_calm = 0
        self._posts.append(PostOp(seq.seq_id, [token]))

    def splice(self, seq: Sequence, splice: Splice) -> None:
        """Carry out a splice in place of sampling, and tell the guest in the next round. Raises ControllerError for a
        splice that removes too much or appends unknown tokens."""
        if self._wishes.splice(seq, splice):
            self._posts.append(PostOp(seq.seq_id, list(splice.ff_tokens), splice.backtrack))


def _clones(parent_id: SeqId, seq_ids: Iterable[SeqId]) -> Iterable[MidOp]:
    return (MidOp(seq_id, parent_id) for seq_id in seq_ids)
