"""The driver of a guest that speaks ABI v2 (see `abi.py`): one callback, told what happened, answers with branches.

Under protocol v1 the callback runs in pre, because pre must say whether to suspend, fork or force tokens; mid then
hands over the mask computed in pre. So pre has the time limit of mid for such a guest.
"""

from collections.abc import Sequence

import orjson

from aici_base.ids import TokenId
from aici_runtime.guests.abi_v2 import NOTHING, Branch, GuestSplice, encode, parse
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

    # The argument of the next callback.
    _backtrack = 0
    _tokens_since: Sequence[int] = ()
    _sampled: int | None = None
    _fork_group: Sequence[int] = ()

    _branches: Sequence[Branch] = ()
    """The branches for mid to hand over, one per fork; after mid, only the branch handed over."""
    _is_waiting = False
    """True between pre and mid. If the engine had no room for mid, the next pre repeats its answer."""
    _forced: Sequence[TokenId] = ()
    """Tokens that a conditional splice appends without removing any token: pre can force them."""
    _owed: GuestSplice | None = None
    """A conditional splice that removes tokens: the next mid asks the engine to apply the splice."""

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
        """Record what happened, for the argument of the next callback."""
        self._tokens_since = tokens
        self._backtrack = max(0, backtrack - 1)
        if self._owed is not None:
            # The splice removes the sampled token, and the guest has not seen the token appended.
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
        """Return the mask row, and the splice to apply in place of sampling (None: sample)."""
        if self._owed is not None:
            return self._bits.everything, _wire(self._owed)
        self._is_waiting = False
        place = fork_group.index(self._state.seq_id) if self._state.seq_id in fork_group else 0
        branch = self._branches[place] if place < len(self._branches) else NOTHING
        self._branches = (branch,)
        if len(fork_group) > 1:
            self._fork_group = fork_group
        if branch.temperature is not None:
            self._state.log(b"warning: the engine ignores the temperature of a branch\n")
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


def _wire(splice: GuestSplice) -> dict[str, object]:
    """Encode a splice for protocol v1. Backtracking counts the token sampled in this step too: a backtrack of 1 without
    tokens changes nothing."""
    return {"ff_tokens": splice.ff_tokens, "backtrack": splice.backtrack + 1}
