"""The driver of a guest that speaks ABI v1: callbacks pre, mid and post (see `abi.py`)."""

from typing import Any

import orjson

from aici_base.ids import TokenId
from aici_runtime.guests.abi_v2 import NOTHING, Branch, GuestSplice, encode
from aici_runtime.guests.driver import (
    GO_ON,
    MAX_BACKTRACK,
    MAX_FF_ROUNDS,
    NO_STOP,
    NULL,
    STOP,
    GuestDriver,
    InvalidResultError,
    field,
    shorten,
)

_SAMPLE: dict[str, object] = {"SampleWithBias": {}}

# Most guests answer most tokens with exactly these bytes, so parsing is skipped for them.
_GO_ON = b'{"num_forks":1,"suspend":false,"ff_tokens":[]}'
_SAMPLE_JSON = b'{"SampleWithBias":{}}'


class DriverV1(GuestDriver):
    _held: tuple[list[TokenId], bool, int] | None = None
    """Protocol v2 only: the tokens that pre has forced, whether to suspend, and the number of forks. The guest knows of
    the forced tokens, but the engine has yet to append them; until then pre is not called again."""

    def post(self, tokens: bytes, backtrack: int) -> bytes:
        # The engine counts the sampled token, which was never appended; the guest never saw the token.
        def body() -> bytes:
            return STOP if self._post(tokens, max(0, backtrack - 1)) else NO_STOP

        return self._result("post", body, failed=STOP)

    def pre(self) -> bytes:
        def body() -> bytes:
            ff_tokens, suspend, num_forks = self._pre()
            if not ff_tokens and not suspend and num_forks == 1:
                return GO_ON
            return orjson.dumps({"suspend": suspend, "num_forks": num_forks, "ff_tokens": ff_tokens})

        return self._result("pre", body, failed=GO_ON)

    def mid(self, fork_group: bytes) -> tuple[bytes, bytes | bytearray | None]:
        bits: bytes | bytearray | None = None

        def body() -> bytes:
            nonlocal bits
            decision = self._mid(fork_group)
            if decision is None:
                bits = self._bits.only([self._context.eos_token])
                return NULL
            if not isinstance(decision, GuestSplice):
                bits = decision
                return NULL
            if decision.backtrack > 0:
                bits = self._bits.everything
                return orjson.dumps({"ff_tokens": decision.ff_tokens, "backtrack": decision.backtrack + 1})
            bits = self._bits.only(decision.ff_tokens[:1])
            return orjson.dumps({"ff_tokens": decision.ff_tokens, "backtrack": 0})

        return self._result("mid", body, failed=NULL), bits

    def step(self, argument: bytes, row: int) -> tuple[bytes, list[bytearray]]:
        masks: list[bytearray] = []

        def body() -> bytes:
            return encode(self._step(orjson.loads(argument)), row, masks, self._context.capabilities)

        return self._result("mid", body, failed=NULL), masks

    def _step(self, arg: dict[str, Any]) -> list[Branch]:
        """Run post, pre and mid as one step of protocol v2. Forking takes an extra step without effect: the branches
        are made before the next step, in which every branch says what to do."""
        if self._held is not None:
            (ff_tokens, suspend, num_forks), self._held = self._held, None
            if arg["backtrack"] or arg["tokens"] != ff_tokens:
                raise InvalidResultError("the engine did not append the tokens that the controller forced")
        else:
            tokens, backtrack = arg["tokens"], arg["backtrack"]
            if (tokens or backtrack) and self._post(orjson.dumps(tokens), backtrack):
                return []
            ff_tokens, suspend, num_forks = self._pre()
            if ff_tokens:
                self._held = ff_tokens, suspend, num_forks
                return [Branch(splices=[GuestSplice(0, ff_tokens)])]
        if num_forks == 0:
            return []
        if suspend:
            return [NOTHING]
        if num_forks > 1:
            self._held = [], False, 1
            return [NOTHING] * num_forks
        decision = self._mid(orjson.dumps(arg["fork_group"]))
        if decision is None:
            return []
        if isinstance(decision, GuestSplice):
            return [Branch(splices=[decision])]
        unconstrained = decision is self._context.masks.without_bias
        return [Branch(mask=bytearray(self._bits.everything if unconstrained else decision))]

    def _post(self, tokens: bytes, backtrack: int) -> bool:
        returned = self._run("aici_post_process", b'{"tokens":%b,"backtrack":%d}' % (tokens, backtrack))
        return returned != NO_STOP and bool(field(self._parsed("aici_post_process", returned), "stop", bool))

    def _pre(self) -> tuple[list[TokenId], bool, int]:
        """Return the forced tokens, whether to suspend, and the number of forks. pre is called again after every batch
        of forced tokens, so the engine sees a single batch."""
        ff_tokens: list[TokenId] = []
        for _ in range(MAX_FF_ROUNDS):
            returned = self._run("aici_pre_process", b"{}")
            if returned == _GO_ON:
                return ff_tokens, False, 1
            answer = self._parsed("aici_pre_process", returned)
            suspend = field(answer, "suspend", bool)
            num_forks = field(answer, "num_forks", int)
            more = self._tokens(answer)
            if num_forks < 0 or (suspend and num_forks != 1):
                raise InvalidResultError(f"num_forks={num_forks} with suspend={suspend}")
            if num_forks > self._context.max_forks:
                raise InvalidResultError(f"too many forks (max={self._context.max_forks})")
            ff_tokens += more
            if not more:
                return ff_tokens, suspend, num_forks
            if num_forks != 1 or suspend:
                raise InvalidResultError("ff_tokens need num_forks == 1 and suspend == false")
            if self._post(orjson.dumps(more), 0):
                return ff_tokens, False, 0
        raise InvalidResultError("too many ff_tokens rounds from pre_process")

    def _mid(self, fork_group: bytes) -> bytes | bytearray | GuestSplice | None:
        """Return the bits to sample by, a splice, or None to stop."""
        returned = self._run("aici_mid_process", b'{"fork_group":%b}' % fork_group, takes_mask=True)
        answer = None if returned == _SAMPLE_JSON else self._parsed("aici_mid_process", returned)
        if returned == _SAMPLE_JSON or answer == _SAMPLE:
            masks = self._state.masks
            return self._bits.trimmed(masks[0]) if masks else self._context.masks.without_bias
        if answer == "Stop":
            return None
        if not (isinstance(answer, dict) and list(answer) == ["Splice"]):
            raise InvalidResultError(f"invalid result of mid_process: {shorten(answer)}")
        backtrack = field(answer["Splice"], "backtrack", int)
        ff_tokens = self._tokens(answer["Splice"])
        if not 0 <= backtrack < MAX_BACKTRACK:
            raise InvalidResultError(f"backtrack out of range: {backtrack}")
        if not backtrack and not ff_tokens:
            raise InvalidResultError("empty Splice (both backtrack == 0 and ff_tokens == [])")
        return GuestSplice(backtrack, ff_tokens)
