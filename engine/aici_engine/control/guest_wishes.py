"""What guests want: to force tokens, take tokens back, wait, fork and stop. Wishes are carried out here, as far as the
sequence itself is concerned; a failing guest ends its own sequence only."""

from collections.abc import Sequence as Seq
from typing import Any

from aici_base.errors import AiciError, ControllerError
from aici_base.ids import TokenId
from aici_engine.control.guest_errors import guest_error
from aici_engine.event_output import EventOutput
from aici_engine.events import FinishReason
from aici_engine.sequences.sequence import Sequence
from aici_runtime.wire import Pre, SeqResult, Splice

_GO_ON = Pre(suspend=False, num_forks=1, ff_tokens=())

MAX_FORKS_IN_ALL = 1024
"""Sequences of one request, ended and refused sequences included: the request's result lists every fork."""


class GuestWishes:
    """Used by the engine's thread alone. Tokens from `num_logits` on are unknown; to guests, all `eos_tokens` are
    one."""

    def __init__(self, output: EventOutput, *, num_logits: int, eos_tokens: frozenset[TokenId]) -> None:
        self._output = output
        self._num_logits = num_logits
        self._eos_tokens = eos_tokens

    def noted(self, seq: Sequence, result: SeqResult[Any] | None) -> bool:
        """Report logs and variables. Return False, with the sequence marked to end, if the guest failed."""
        error: AiciError | None = None
        if result is None:
            error = ControllerError("the controller did not answer")
        else:
            self._output.controlled(seq, result.logs, result.storage)
            if result.error:
                error = guest_error(result.error)
        if error is not None:
            seq.end(FinishReason.FAIL, error)
        return error is None

    def apply_pre(self, seq: Sequence, pre: Pre, *, was_calm: bool) -> None:
        """Carry out the result of pre. `was_calm`: no round has waited for the guest."""
        if pre == _GO_ON:
            seq.guest.went_on()
        else:
            seq.guest.wished()
            if was_calm:
                # The guest lost this step: the wish came too late for the forward pass.
                seq.guest.calm_rounds *= 2
        try:
            self._check(pre.ff_tokens)
        except ControllerError as error:
            seq.end(FinishReason.FAIL, error)
            return
        # The runtime tells the guest of tokens forced by pre.
        self._output.forced(seq, pre.ff_tokens)
        if pre.ff_tokens:
            seq.guest.last_was_eos = False
        if pre.num_forks == 0:
            seq.end(stopped(seq))
        if pre.suspend and not pre.late and not seq.guest.suspended:
            self._output.suspended(seq)
        seq.guest.suspended, seq.guest.late = pre.suspend, pre.late
        if seq.group.num_forks + pre.num_forks > MAX_FORKS_IN_ALL:
            why = f"the controller forked into more than {MAX_FORKS_IN_ALL} sequences in all"
            seq.group.end(FinishReason.FAIL, ControllerError(why))
        # If the sequence is not sampled in this step, the next round asks the guest again.
        seq.guest.num_branches = max(1, pre.num_forks)

    def splice(self, seq: Sequence, splice: Splice) -> bool:
        """Carry out a splice in place of sampling. Return whether the guest is to be told: not, if the guest is late.

        Tokens that the splice removes and appends again stay, with their keys, values and text. Raises ControllerError
        for a splice that removes too much or appends unknown tokens.
        """
        self._check(splice.ff_tokens)
        if splice.late:
            seq.guest.num_calm = 0
            return False
        # The guest counts the token of this step too, which was never appended.
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
        return True

    def _check(self, tokens: Seq[TokenId]) -> None:
        for token in tokens:
            if not 0 <= token < self._num_logits:
                raise ControllerError(f"the controller forced token {token}: tokens are 0 to {self._num_logits - 1}")


def stopped(seq: Sequence) -> FinishReason:
    """Return the reason of the end of a sequence whose guest has stopped."""
    return FinishReason.EOS if seq.guest.last_was_eos else FinishReason.STOP
