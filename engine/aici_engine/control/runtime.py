"""The interface between the engine and a controller runtime. `aici_runtime.client.Runtime` implements the interface."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from aici_base.errors import UnavailableError
from aici_base.ids import SeqId, TokenId
from aici_runtime.wire import MidOp, Patience, PostOp, PreOp, Turn


class ControllerRuntime(Protocol):
    """A controller runtime, ready to start guests.

    Any thread may call `add_engine`, `instantiate` and `discard`. The engine's thread alone calls the other methods, in
    the order `send_turn`, `recv_turn`, `mask_rows`, or with `send_calm` and `recv_calm`. Every method but `add_engine`
    may raise RuntimeDiedError.
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_token(self) -> TokenId: ...

    def add_engine(self) -> int:
        """Return the number of an engine that begins to use the runtime. Every call returns another number.

        The number is a part of every `req_id` of the engine: a `req_id` is taken while its guest starts, even if the
        engine has ended meanwhile.
        """
        ...

    def instantiate(
        self, *, req_id: str, prompt: Sequence[TokenId], module_id: str, module_arg: object, seed: int, user: str = ""
    ) -> "Future[None]":
        """Start a guest for request `req_id` of `user`. The future fails with an AiciError if no guest can start."""
        ...

    def discard(self, req_id: str) -> None:
        """End the guest of a request whose sequence was never bound."""
        ...

    def send_turn(
        self,
        *,
        post_ops: Sequence[PostOp],
        pre_ops: Sequence[PreOp],
        asked: Sequence[SeqId],
        ops: Sequence[MidOp],
        freed: Sequence[SeqId],
        patience: Patience | None = None,
    ) -> None:
        """Send one turn to the guests. `recv_turn` must follow.

        The sequences `asked` run post and pre, the sequences of `pre_ops` are bound and run pre, the sequences of `ops`
        run mid, and the guests of `freed` end. A sequence in `asked` and `ops` runs mid only if pre just goes on.
        `patience`: how long the answer may wait for guests.
        """
        ...

    def recv_turn(self) -> Turn:
        """Wait for the answer to the last `send_turn`."""
        ...

    def send_calm(self, ids: Sequence[SeqId], tokens: Sequence[TokenId], patience: Patience | None) -> None:
        """Do as `send_turn` for the guests of `ids`, which run post with one token of `tokens` each, then pre and mid.
        `recv_calm` must follow."""
        posts = [PostOp(seq_id, [token]) for seq_id, token in zip(ids, tokens, strict=True)]
        ops = [MidOp(seq_id) for seq_id in ids]
        self.send_turn(post_ops=posts, pre_ops=[], asked=ids, ops=ops, freed=[], patience=patience)

    def recv_calm(self) -> list[int] | None:
        """Return the microseconds of each guest if all have a mask and nothing else to say. Else return None:
        `recv_turn` must follow."""
        return None

    def mask_rows(self, n: int) -> memoryview:
        """Return the masks of the last turn's `n` ops: row i for `ops[i]`, shape (n, 4 * ceil(vocab_size / 32)).

        A bit is 1 if the token is allowed, least significant bit first. Valid until the next `send_turn`.
        """
        ...


class NoRuntime(ControllerRuntime):
    """The null implementation: no guest can start, so the engine generates without controllers."""

    vocab_size = 0
    eos_token = TokenId(0)

    def add_engine(self) -> int:
        """Return 1: no guest starts, so names need not differ."""
        return 1

    def instantiate(
        self,
        *,
        req_id: str,  # noqa: ARG002
        prompt: Sequence[TokenId],  # noqa: ARG002
        module_id: str,
        module_arg: object,  # noqa: ARG002
        seed: int,  # noqa: ARG002
        user: str = "",  # noqa: ARG002
    ) -> "Future[None]":
        future: Future[None] = Future()
        future.set_exception(
            UnavailableError(
                f"controller {module_id} cannot run: this engine has no controller runtime",
                hint="make the Engine with runtime=Runtime(...)",
            )
        )
        return future

    def discard(self, req_id: str) -> None:
        """Nothing was instantiated."""

    def send_turn(
        self,
        *,
        post_ops: Sequence[PostOp],
        pre_ops: Sequence[PreOp],
        asked: Sequence[SeqId],
        ops: Sequence[MidOp],
        freed: Sequence[SeqId],
        patience: Patience | None = None,
    ) -> None:
        """No guest exists, so nothing is sent."""

    def recv_turn(self) -> Turn:
        return Turn(post={}, pre={}, mid={})

    def mask_rows(self, n: int) -> memoryview:  # noqa: ARG002
        return memoryview(b"")
