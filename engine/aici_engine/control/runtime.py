"""What the engine needs of a controller runtime. `aici_runtime.client.Runtime` has this shape."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from aici_base.errors import UnavailableError
from aici_base.ids import SeqId, TokenId
from aici_runtime.wire import MidOp, PostOp, PreOp, Turn


class ControllerRuntime(Protocol):
    """The first two methods may be called from any thread, the others from the engine's thread alone, in the order
    `send_turn`, `recv_turn` and `mask_rows`. All may raise RuntimeDiedError."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_token(self) -> TokenId: ...

    def instantiate(
        self, *, req_id: str, prompt: Sequence[TokenId], module_id: str, module_arg: object, seed: int
    ) -> "Future[None]": ...

    def discard(self, req_id: str) -> None: ...

    def send_turn(
        self,
        *,
        post_ops: Sequence[PostOp],
        pre_ops: Sequence[PreOp],
        asked: Sequence[SeqId],
        ops: Sequence[MidOp],
        freed: Sequence[SeqId],
    ) -> None:
        """Post and pre of `asked` and of what `pre_ops` bind, and mid of `ops`: of those that are in both, if they say
        nothing but to go on. `recv_turn` must follow."""
        ...

    def recv_turn(self) -> Turn: ...

    def mask_rows(self, n: int) -> memoryview:
        """Row i for `ops[i]`: bits, least significant first, 4 * ceil(vocab_size / 32) bytes; valid until the next
        `send_turn`."""
        ...


class NoRuntime:
    """The null implementation: generation without controllers."""

    vocab_size = 0
    eos_token = TokenId(0)

    def instantiate(
        self,
        *,
        req_id: str,  # noqa: ARG002
        prompt: Sequence[TokenId],  # noqa: ARG002
        module_id: str,
        module_arg: object,  # noqa: ARG002
        seed: int,  # noqa: ARG002
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
    ) -> None:
        """There are no guests to ask."""

    def recv_turn(self) -> Turn:
        return Turn(post={}, pre={}, mid={})

    def mask_rows(self, n: int) -> memoryview:  # noqa: ARG002
        return memoryview(b"")
