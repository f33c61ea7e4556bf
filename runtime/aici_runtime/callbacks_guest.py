"""A guest with callbacks pre, mid and post (see `abi.py`)."""

from collections.abc import Sequence
from typing import Any

from aici_runtime.branches import NOTHING, Branch, Splice, encode
from aici_runtime.callbacks import (
    CONTINUE,
    MAX_BACKTRACK,
    MAX_FF_ROUNDS,
    CallbackError,
    Callbacks,
    PostArg,
    StepArg,
    field,
    shorten,
)
from aici_runtime.ids import TokenId

_SAMPLE: dict[str, object] = {"SampleWithBias": {}}


class CallbacksGuest(Callbacks):
    _held: tuple[list[TokenId], bool, int] | None = None
    """With the op set of mid alone: tokens that pre has forced, which the guest knows of but the engine has yet to
    append, and whether to suspend and how often to fork after them. pre is not asked again until then."""

    def post(self, arg: PostArg) -> bytes:
        # The engine counts the token that was sampled and never appended; the guest never saw it.
        return self._result(
            "post", lambda: {"stop": self._post(arg.tokens, max(0, arg.backtrack - 1))}, failed={"stop": True}
        )

    def pre(self) -> bytes:
        def body() -> object:
            ff_tokens, suspend, num_forks = self._pre()
            return {"suspend": suspend, "num_forks": num_forks, "ff_tokens": ff_tokens}

        return self._result("pre", body, failed=CONTINUE)

    def mid(self, fork_group: Sequence[int]) -> tuple[bytes, bytes | bytearray | None]:
        bits: bytes | bytearray | None = None

        def body() -> object:
            nonlocal bits
            decision = self._mid(fork_group)
            if decision is None:
                bits = self._bits.only([self._world.eos_token])
                return None
            if not isinstance(decision, Splice):
                bits = decision
                return None
            if decision.backtrack > 0:
                bits = self._bits.everything
                return {"ff_tokens": decision.ff_tokens, "backtrack": decision.backtrack + 1}
            bits = self._bits.only(decision.ff_tokens[:1])
            return {"ff_tokens": decision.ff_tokens, "backtrack": 0}

        return self._result("mid", body, failed=None), bits

    def step(self, arg: StepArg) -> tuple[bytes, list[bytearray]]:
        masks: list[bytearray] = []

        def body() -> object:
            return encode(self._step(arg), arg.row, masks, self._world.capabilities)

        return self._result("mid", body, failed=None), masks

    def _step(self, arg: StepArg) -> list[Branch]:
        """A step of three callbacks as one. Forking takes a step in which nothing happens: the branches are made before
        the next, and each says then what it wants."""
        if self._held is not None:
            (ff_tokens, suspend, num_forks), self._held = self._held, None
            if arg.backtrack or list(arg.tokens) != ff_tokens:
                raise CallbackError("the engine did not append the tokens that the controller forced")
        else:
            if (arg.tokens or arg.backtrack) and self._post(arg.tokens, arg.backtrack):
                return []
            ff_tokens, suspend, num_forks = self._pre()
            if ff_tokens:
                self._held = ff_tokens, suspend, num_forks
                return [Branch(splices=[Splice(0, ff_tokens)])]
        if num_forks == 0:
            return []
        if suspend:
            return [NOTHING]
        if num_forks > 1:
            self._held = [], False, 1
            return [NOTHING] * num_forks
        decision = self._mid(arg.fork_group)
        if decision is None:
            return []
        if isinstance(decision, Splice):
            return [Branch(splices=[decision])]
        unconstrained = decision is self._world.masks.without_bias
        return [Branch(mask=bytearray(self._bits.everything if unconstrained else decision))]

    def _post(self, tokens: Sequence[int], backtrack: int) -> bool:
        answer = self._run("aici_post_process", {"tokens": list(tokens), "backtrack": backtrack})
        return bool(field(answer, "stop", bool))

    def _pre(self) -> tuple[list[TokenId], bool, int]:
        """Forced tokens, whether to suspend, number of forks. Asks again after every batch of forced tokens, so that
        the engine sees one batch."""
        ff_tokens: list[TokenId] = []
        for _ in range(MAX_FF_ROUNDS):
            answer = self._run("aici_pre_process", {})
            suspend = field(answer, "suspend", bool)
            num_forks = field(answer, "num_forks", int)
            more = self._tokens(answer)
            if num_forks < 0 or (suspend and num_forks != 1):
                raise CallbackError(f"num_forks={num_forks} with suspend={suspend}")
            if num_forks > self._world.max_forks:
                raise CallbackError(f"too many forks (max={self._world.max_forks})")
            ff_tokens += more
            if not more:
                return ff_tokens, suspend, num_forks
            if num_forks != 1 or suspend:
                raise CallbackError("ff_tokens need num_forks == 1 and suspend == false")
            if self._post(more, 0):
                return ff_tokens, False, 0
        raise CallbackError("too many ff_tokens rounds from pre_process")

    def _mid(self, fork_group: Sequence[int]) -> bytes | bytearray | Splice | None:
        """Bits to sample by, a splice, or None: stop."""
        answer: Any = self._run("aici_mid_process", {"fork_group": list(fork_group)}, takes_mask=True)
        if answer == _SAMPLE:
            masks = self._state.masks
            return self._bits.trimmed(masks[0]) if masks else self._world.masks.without_bias
        if answer == "Stop":
            return None
        if not (isinstance(answer, dict) and list(answer) == ["Splice"]):
            raise CallbackError(f"invalid result of mid_process: {shorten(answer)}")
        backtrack = field(answer["Splice"], "backtrack", int)
        ff_tokens = self._tokens(answer["Splice"])
        if not 0 <= backtrack < MAX_BACKTRACK:
            raise CallbackError(f"backtrack out of range: {backtrack}")
        if not backtrack and not ff_tokens:
            raise CallbackError("empty Splice (both backtrack == 0 and ff_tokens == [])")
        return Splice(backtrack, ff_tokens)
