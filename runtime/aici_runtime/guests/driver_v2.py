"""A guest of the later interface (see `abi.py`): one callback, which is told what happened and answers with branches.

Under the op set of pre, mid and post the callback runs in pre, because pre must say whether to suspend, fork or force
tokens; mid hands over the mask that waits since then. So such a guest's time counts as that of the step.
"""

from collections.abc import Sequence

import orjson

from aici_base.ids import TokenId
from aici_runtime.guests.abi_v2 import NOTHING, Branch, Splice, encode, parse
from aici_runtime.guests.driver import (
    CONTINUE,
    GO_ON,
    MAX_FF_ROUNDS,
    NO_STOP,
    NULL,
    STOP,
    GuestDriver,
    InvalidResultError,
)


class DriverV2(GuestDriver):
    _masks_in_pre = True

    # What the next callback is to be told.
    _backtrack = 0
    _tokens_since: Sequence[int] = ()
    _sampled: int | None = None
    _fork_group: Sequence[int] = ()

    _branches: Sequence[Branch] = ()
    """Answers that mid is to hand over, one for each fork; afterwards, the one that it has handed over."""
    _is_waiting = False
    """mid has not come since pre: the engine had no room, and pre answers the same again."""
    _forced: Sequence[TokenId] = ()
    """What a conditional splice appends without removing anything: pre can do that."""
    _owed: Splice | None = None
    """A conditional splice that removes: the next mid asks the engine for it."""

    def step(self, argument: bytes, row: int) -> tuple[bytes, list[bytearray]]:
        masks: list[bytearray] = []

        def body() -> bytes:
            return encode(self._call(argument), row, masks, self._context.capabilities)

        return self._result("mid", body, failed=NULL), masks

    def post(self, tokens: bytes, backtrack: int) -> bytes:
        def body() -> bytes:
            self._posted(orjson.loads(tokens), backtrack)
            return NO_STOP

        return self._result("post", body, failed=STOP)

    def pre(self) -> bytes:
        return self._result("pre", lambda: orjson.dumps(self._pre()), failed=GO_ON)

    def mid(self, fork_group: bytes) -> tuple[bytes, bytes | bytearray | None]:
        bits: bytes | bytearray | None = None

        def body() -> bytes:
            nonlocal bits
            bits, splice = self._decide(orjson.loads(fork_group))
            return orjson.dumps(splice)

        return self._result("mid", body, failed=NULL), bits

    def _posted(self, tokens: Sequence[int], backtrack: int) -> None:
        """Note what happened, as the callback will be told."""
        self._tokens_since = tokens
        self._backtrack = max(0, backtrack - 1)
        if self._owed is not None:
            # It removes the token that was sampled, which the guest has not seen appended.
            self._backtrack, self._owed = self._backtrack - 1, None
            return
        self._sampled = None
        if self._branches and self._branches[0].mask is not None and tokens:
            self._sampled = tokens[0]
            splice = self._branches[0].splice_for(self._sampled)
            if splice is not None and splice.backtrack:
                self._owed = splice
            elif splice is not None:
                self._forced = splice.ff_tokens
        self._branches = ()

    def _pre(self) -> object:
        if self._owed is not None:
            return CONTINUE
        if self._is_waiting:
            return CONTINUE | {"num_forks": len(self._branches)}
        ff_tokens = list(self._forced)
        self._tokens_since = [*self._tokens_since, *self._forced]
        self._forced = ()
        for _ in range(MAX_FF_ROUNDS):
            branches = self._call(self._argument())
            self._backtrack, self._tokens_since, self._sampled, self._fork_group = 0, (), None, ()
            splice = branches[0].splices[0] if len(branches) == 1 and branches[0].mask is None else None
            if splice is not None and splice.is_nothing and not ff_tokens:
                return CONTINUE | {"suspend": True}
            if splice is None or splice.is_nothing or splice.backtrack:
                self._branches, self._is_waiting = branches, bool(branches)
                return CONTINUE | {"num_forks": len(branches), "ff_tokens": ff_tokens}
            ff_tokens += splice.ff_tokens
            self._tokens_since = splice.ff_tokens
        raise InvalidResultError("too many ff_tokens rounds from mid_process")

    def _decide(self, fork_group: Sequence[int]) -> tuple[bytes | bytearray, object]:
        """The row, and what the engine does instead of sampling."""
        if self._owed is not None:
            return self._bits.everything, _wire(self._owed)
        self._is_waiting = False
        place = fork_group.index(self._state.seq_id) if self._state.seq_id in fork_group else 0
        branch = self._branches[place] if place < len(self._branches) else NOTHING
        self._branches = (branch,)
        if len(fork_group) > 1:
            self._fork_group = fork_group
        if branch.temperature is not None:
            self._state.log(b"warning: the engine has no temperature of branches\n")
        if branch.mask is not None:
            return branch.mask, None
        splice = branch.splices[0]
        if splice.ff_tokens and not splice.backtrack:
            return self._bits.only(splice.ff_tokens[:1]), {"ff_tokens": splice.ff_tokens, "backtrack": 0}
        return self._bits.everything, _wire(splice)

    def _argument(self) -> bytes:
        return orjson.dumps(
            {
                "backtrack": self._backtrack,
                "tokens": list(self._tokens_since),
                "sampled": self._sampled,
                "fork_group": list(self._fork_group) or [self._state.seq_id],
            }
        )

    def _call(self, argument: bytes) -> list[Branch]:
        answer = self._parsed("aici_mid_process", self._run("aici_mid_process", argument, takes_mask=True))
        masks = [self._bits.trimmed(mask) for mask in self._state.masks]
        branches = parse(answer, masks, self._context.vocab_size)
        if len(branches) > self._context.max_forks:
            raise InvalidResultError(f"too many forks (max={self._context.max_forks})")
        return branches


def _wire(splice: Splice) -> dict[str, object]:
    """Backtracking counts the token that is sampled in this step too: with 1 and no tokens, nothing happens."""
    return {"ff_tokens": splice.ff_tokens, "backtrack": splice.backtrack + 1}
