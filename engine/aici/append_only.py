"""Guests on an engine that only appends: one token a step to every row, and none taken back.

`generate` of transformers and vLLM's scheduler are such engines. A guest may allow tokens, force tokens and stop. A
guest that removes tokens, forks or waits for a fork fails, and the error names the wish.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from aici.errors import ControllerError
from aici_base.errors import AiciError
from aici_base.ids import SeqId, TokenId
from aici_engine.control.guest_errors import guest_error
from aici_engine.control.runtime import ControllerRuntime
from aici_runtime.wire import MidOp, PostOp, Pre, PreOp, SeqResult, Splice, Turn

if TYPE_CHECKING:
    from concurrent.futures import Future

Bits: TypeAlias = npt.NDArray[np.uint8]
"""A mask: a bit a token, least significant bit first, 1: allowed; 4 * ceil(vocabulary / 32) bytes."""


@dataclass(slots=True, eq=False)
class _Guest:
    """`forced`: tokens still to be forced. `told`: tokens that the guest is to be told of. `asks_pre`: pre comes before
    the next mask. `stopped`: the text ends after the forced tokens. `error`: the guest failed."""

    seq_id: SeqId
    forced: deque[TokenId] = field(default_factory=deque)
    told: PostOp | None = None
    asks_pre: bool = True
    stopped: bool = False
    error: AiciError | None = None


class AppendOnlyGuests:
    """The guests of rows, by key. Call every method but `start` from one thread; `receive` follows every `send`.

    `engine`: the engine's name in refusals. `eos_tokens`: the tokens that end a row, also where the guest would go on.
    All methods raise RuntimeDiedError if the runtime has died.
    """

    def __init__(self, runtime: ControllerRuntime, *, engine: str, eos_tokens: Iterable[int] = ()) -> None:
        self._runtime = runtime
        self._engine = engine
        self._eos_tokens = {int(runtime.eos_token), *eos_tokens}
        self._guests: dict[str, _Guest] = {}
        self._num_started = 0
        self._freed: list[SeqId] = []
        self._asked: list[_Guest] = []
        self._wanted: list[str] = []

    def start(self, key: str, prompt: Sequence[int], *, module_id: str, argument: object, seed: int) -> "Future[None]":
        """Start the guest of a row. The future fails if the guest does not start. `bind` or `discard` must follow."""
        tokens = [TokenId(token) for token in prompt]
        return self._runtime.instantiate(req_id=key, prompt=tokens, module_id=module_id, module_arg=argument, seed=seed)

    def discard(self, key: str) -> None:
        """End a guest that was started and not bound."""
        self._runtime.discard(key)

    def bind(self, keys: Sequence[str]) -> None:
        """Take guests that have started. A guest that wants what the engine has not fails at its first answer."""
        if not keys:
            return
        for key in keys:
            self._num_started += 1
            self._guests[key] = _Guest(SeqId(self._num_started))
        guests = [self._guests[key] for key in keys]
        self._send(bound=[PreOp(guest.seq_id, key) for guest, key in zip(guests, keys, strict=True)])
        turn = self._runtime.recv_turn()
        for guest in guests:
            self._hear(guest, turn)

    def free(self, key: str) -> None:
        """End a guest that was bound, with the next message at the latest. No effect on other keys."""
        guest = self._guests.pop(key, None)
        if guest is not None:
            self._freed.append(guest.seq_id)

    def keys(self) -> list[str]:
        """Return the rows with a bound guest."""
        return list(self._guests)

    def flush(self) -> None:
        """End the freed guests now."""
        if self._freed:
            self._send()
            self._runtime.recv_turn()

    def send(self, rows: Mapping[str, Sequence[int]]) -> None:
        """Ask for the masks of rows. `rows[key]`: the tokens appended since the last time. Guests compute meanwhile."""
        self._wanted = list(rows)
        for key, tokens in rows.items():
            for token in tokens:
                self._take(self._guests[key], TokenId(token))
        guests = [self._guests[key] for key in rows]
        self._asked = [guest for guest in guests if not (guest.error or guest.stopped or guest.forced)]
        if self._asked:
            pre = [guest for guest in self._asked if guest.asks_pre]
            told = [guest.told for guest in pre if guest.told is not None]
            self._send(told=told, asked=pre, masked=self._asked)

    def receive(self) -> "dict[str, Bits | AiciError]":
        """Return the masks of the rows of `send`, by key, or the error of a guest that failed.

        A row with a forced token has a mask with this token alone; a row that stops has a mask with EOS alone.
        """
        answers: dict[SeqId, Bits] = {}
        if self._asked:
            asked, self._asked = self._asked, []
            turn = self._runtime.recv_turn()
            rows = np.asarray(self._runtime.mask_rows(len(asked)))
            for guest, bits in zip(asked, rows, strict=True):
                mask = self._answer(guest, turn, bits)
                if mask is not None:
                    answers[guest.seq_id] = mask
        # A row may have ended since `send`.
        return {key: self._row(self._guests[key], answers) for key in self._wanted if key in self._guests}

    def _row(self, guest: _Guest, masks: Mapping[SeqId, Bits]) -> "Bits | AiciError":
        if guest.error is not None:
            return guest.error
        if guest.seq_id in masks:
            return masks[guest.seq_id]
        return self._single(guest.forced[0] if guest.forced else self._runtime.eos_token)

    def _single(self, token: TokenId) -> Bits:
        bits = np.zeros(4 * -(-self._runtime.vocab_size // 32), np.uint8)
        bits[token // 8] = 1 << token % 8
        return bits

    def _take(self, guest: _Guest, token: TokenId) -> None:
        if guest.forced:
            if token != guest.forced.popleft():
                guest.error = ControllerError(f"{self._engine} appended token {token} where the controller forced one")
        elif token in self._eos_tokens:
            guest.stopped = True
        elif not guest.stopped:
            guest.told, guest.asks_pre = PostOp(guest.seq_id, [token]), True

    def _answer(self, guest: _Guest, turn: Turn, bits: Bits) -> Bits | None:
        """Hear a guest. Return its mask, if it gives one."""
        if guest.asks_pre:
            self._hear(guest, turn)
        if guest.error or guest.stopped or guest.forced:
            return None
        splice = self._heard(guest, turn.mid.get(guest.seq_id))
        if guest.error is not None:
            return None
        guest.asks_pre = True
        if splice is not None:
            self._splice(guest, splice)
            return None
        if not bits.any():
            guest.error = ControllerError("the controller's mask allows no token")
            return None
        return bits.copy()

    def _hear(self, guest: _Guest, turn: Turn) -> None:
        """Apply the results of post and pre. A guest with nothing to say but to go on has neither."""
        post = self._heard(guest, turn.post.get(guest.seq_id)) if guest.told is not None else None
        pre = self._heard(guest, turn.pre.get(guest.seq_id))
        guest.told, guest.asks_pre = None, False
        if guest.error is None and post is not None and post.stop:
            guest.stopped = True
        elif guest.error is None and pre is not None:
            self._apply_pre(guest, pre)

    def _apply_pre(self, guest: _Guest, pre: Pre) -> None:
        if pre.suspend:
            self._refuse(guest, "waits for another fork")
        elif pre.num_forks > 1:
            self._refuse(guest, f"forks into {pre.num_forks}")
        else:
            guest.stopped = pre.num_forks == 0
            self._force(guest, pre.ff_tokens)  # the runtime tells the guest of these

    def _splice(self, guest: _Guest, splice: Splice) -> None:
        # The guest counts the token of this step too, which was never appended.
        if splice.backtrack > 1:
            self._refuse(guest, f"removes {splice.backtrack - 1} tokens")
        elif not splice.ff_tokens:
            self._refuse(guest, "changes nothing in a step")
        else:
            self._force(guest, splice.ff_tokens)
            guest.told = PostOp(guest.seq_id, list(splice.ff_tokens), splice.backtrack)

    def _force(self, guest: _Guest, tokens: Sequence[TokenId]) -> None:
        if any(not 0 <= token < self._runtime.vocab_size for token in tokens):
            guest.error = ControllerError(f"the controller forced a token beyond {self._runtime.vocab_size - 1}")
        else:
            guest.forced.extend(tokens)

    def _refuse(self, guest: _Guest, what: str) -> None:
        guest.error = ControllerError(
            f"the controller {what}: {self._engine} cannot", hint="run it on an engine of aici: aici.LLM"
        )

    def _heard(self, guest: _Guest, answer: SeqResult[Any] | None) -> Any:
        if answer is not None and answer.error:
            guest.error = guest_error(answer.error)
        return None if answer is None else answer.result

    def _send(
        self,
        *,
        told: Sequence[PostOp] = (),
        bound: Sequence[PreOp] = (),
        asked: Iterable[_Guest] = (),
        masked: Iterable[_Guest] = (),
    ) -> None:
        freed, self._freed = self._freed, []
        self._runtime.send_turn(
            post_ops=told,
            pre_ops=bound,
            asked=[guest.seq_id for guest in asked],
            ops=[MidOp(guest.seq_id) for guest in masked],
            freed=freed,
        )
