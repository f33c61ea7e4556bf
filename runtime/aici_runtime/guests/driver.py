"""Call a guest: arguments go in, `SeqResult` JSON comes out, whatever the guest does.

Any failure makes the guest sticky-failed: the memory of the guest can no longer be trusted, so later callbacks are not
run. `driver_v1.py` and `driver_v2.py` know the meaning of the callbacks, one file for each guest ABI. Either driver
serves both runtime protocols.
"""

import contextlib
import copy
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

from aici_base.ids import TokenId
from aici_runtime.guests.guest import Guest, GuestError, GuestTimeoutError
from aici_runtime.guests.guest_state import GuestState
from aici_runtime.guests.host_functions import HostFunctions
from aici_runtime.memory.mask_region import MaskRegion

MAX_FF_ROUNDS = 10
MAX_BACKTRACK = 2**32 - 1
CONTINUE: dict[str, object] = {"suspend": False, "num_forks": 1, "ff_tokens": []}
GO_ON: Final = orjson.dumps(CONTINUE)
NO_STOP: Final = b'{"stop":false}'
STOP: Final = b'{"stop":true}'
NULL: Final = b"null"


class InvalidResultError(Exception):
    """The result of the guest breaks a rule of the guest ABI."""


class NotEnabledError(Exception):
    """The guest asked for a capability that the engine lacks."""


class SetupError(Exception):
    """The set-up of the guest failed. The message includes the log of the guest."""


@dataclass(frozen=True, slots=True)
class DriverContext:
    """Facts about the runtime, shared by all drivers of a process."""

    masks: MaskRegion
    vocab_size: int
    eos_token: TokenId
    max_forks: int
    capabilities: frozenset[str]
    timeout_text: Callable[[str], str]
    """Return the error message for a guest that exceeded the time limit of an operation: mid, pre or post."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCall:
    """A call of a callback that the loop in C has made. `error` and `trap`: addresses of objects of wasmtime. `log` and
    `written`: the log and the variables that the guest wrote in the call."""

    error: int | None
    trap: int | None
    result: bytes | None
    mask: bytearray | None
    log: bytes
    written: list[dict[str, Any]]
    elapsed_ns: int


class GuestDriver(ABC):
    """Drives one guest. Owns no process state, so a fork of the process forks the driver too."""

    _masks_in_pre = False
    """True if the guest computes masks in pre, so pre gets the time limit of mid."""

    def __init__(self, *, guest: Guest, host: HostFunctions, state: GuestState, context: DriverContext) -> None:
        self._guest = guest
        self._host = host
        self._state = state
        self._context = context
        self._bits = context.masks.bits
        self.handle = 0
        """The result of `aici_create`: the argument of every later callback."""
        self._failed = False
        self.said = b""
        """The latest result as JSON; empty after a failure."""
        self.is_silent = True
        """True if the latest result came without log and variables."""
        self.made: deque[MadeCall] = deque()
        """The calls made in advance, in order: each stands for the next call of the guest."""
        self._made_ns = 0
        """The time of such calls during the running callback."""
        self._timeout = ""
        """The error message of a guest that exceeded its time limit; every later call repeats the message."""

    def cloned(self, guest: Guest, state: GuestState) -> Self:
        """Return the driver of a fork in the same process."""
        clone = copy.copy(self)
        clone._guest, clone._state, clone.made = guest, state, deque()
        return clone

    @property
    def has_failed(self) -> bool:
        return self._failed

    def create(self, *, read_vocabulary: bool = False) -> None:
        """Run the whole set-up before the prompt; see `Guest.initialize`. Raise SetupError on any failure."""
        with self._setting_up():
            self._guest.initialize(read_vocabulary=read_vocabulary)
            self.handle = self._guest.call("aici_create")

    def init_prompt(self, prompt: Callable[[], Sequence[int]]) -> list[TokenId]:
        """Return the prompt for the engine to use. Raise SetupError on any failure.

        `prompt` is called when the guest reads its argument and again after the callback returns, so several times.
        """
        with self._setting_up():
            self._state.begin_late_call(lambda: orjson.dumps({"prompt": list(prompt())}))
            answer = self._parsed("aici_init_prompt", self._returned("aici_init_prompt"))
            given = [TokenId(token) for token in prompt()]
            return given if answer == {} else self._tokens(answer, "prompt")

    # Protocol v1: pre, mid and post.

    @abstractmethod
    def post(self, tokens: bytes, backtrack: int) -> bytes:
        """Tell the guest what happened and return the result. `tokens`: a JSON list. `backtrack` includes the sampled
        token that was never appended."""

    @abstractmethod
    def pre(self) -> bytes: ...

    @abstractmethod
    def mid(self, fork_group: bytes) -> tuple[bytes, bytes | bytearray | None]:
        """Return the result, and the bits of the mask row unless the guest has failed. `fork_group`: a JSON list."""

    # Protocol v2: mid alone.

    @abstractmethod
    def step(self, argument: bytes, row: int) -> tuple[bytes, list[bytearray]]:
        """Return the result, and the masks named in the result: `row` names the first mask, -k names mask number k > 0.

        `argument`: the argument of mid as a guest of ABI v2 reads it.
        """

    # Shared by both protocols.

    def _run(self, name: str, argument: bytes, *, takes_mask: bool = False) -> bytes:
        """Return the raw result of a callback; `_parsed` parses the result."""
        self._state.begin_call(argument, takes_mask=takes_mask)
        return self._returned(name)

    def _returned(self, name: str) -> bytes:
        state = self._state
        self._host.guest = state
        if self.made:
            made = self.made.popleft()
            state.result, state.masks = made.result, [] if made.mask is None else [made.mask]
            state.put_back(made.log, made.written)
            self._made_ns += made.elapsed_ns
            self._guest.check(made.error, made.trap)
        else:
            self._guest.call(name, self.handle)
        if state.result is None:
            raise InvalidResultError("aici_host_return_process_result not called")
        return state.result

    def _parsed(self, name: str, returned: bytes) -> Any:
        try:
            return orjson.loads(returned)
        except orjson.JSONDecodeError as error:
            raise InvalidResultError(f"invalid JSON from {name}: {error}") from error

    def _result(self, label: str, body: Callable[[], bytes], *, failed: bytes) -> bytes:
        """Run `body`, which returns a result as JSON, and wrap the result or the failure as a `SeqResult`."""
        started, self._made_ns = time.perf_counter_ns(), 0
        error = ""
        try:
            if self._timeout:
                raise GuestTimeoutError
            if self._failed:
                raise GuestError("Previous WASM Error")
            result = body()
        except GuestTimeoutError:
            self._failed = True
            self._timeout = self._timeout or self._context.timeout_text("mid" if self._masks_in_pre else label)
            result, error = NULL, self._timeout
        except NotEnabledError as raised:
            self._failed = True
            result, error = NULL, str(raised)
        except Exception as raised:  # noqa: BLE001  the boundary to the guest: any failure is the guest's
            result, error = failed, self._explain(label, raised)
        micros = (time.perf_counter_ns() - started + self._made_ns) // 1000
        self.said = b"" if error else result
        self.is_silent = not error and self._state.is_silent()
        if self.is_silent:
            return _plain(result, micros)
        logs = self._state.take_log()
        return encode_result(
            result=orjson.Fragment(result),
            error=error,
            storage=self._state.take_written(),
            logs=f"{logs}\n{error}" if error else logs,
            micros=micros,
        )

    def _explain(self, label: str, error: Exception) -> str:
        """Return the error message for the user: log, then backtrace, then root cause."""
        if self._failed:
            return f"Error ({label}): {error}"
        self._failed = True
        cause = self._state.stop_message or str(error)
        log = self._state.take_log()
        text = f"Error ({label}): {log}\n{cause}" if log else f"Error ({label}): {cause}"
        self._state.log(log.encode())
        return text

    @contextlib.contextmanager
    def _setting_up(self) -> Iterator[None]:
        self._host.guest = self._state
        try:
            yield
        except Exception as error:  # the boundary to the guest: any failure is the guest's
            raise SetupError(self._explain("setup", error)) from error

    def _tokens(self, answer: Any, name: str = "ff_tokens") -> list[TokenId]:
        tokens: list[TokenId] = field(answer, name, list)
        for index, token in enumerate(tokens):
            if type(token) is not int or not 0 <= token < self._context.vocab_size:
                raise InvalidResultError(f"ff_token out of range ({token} >= {self._context.vocab_size} at {index})")
        return tokens


def encode_result(*, result: object, error: str, storage: list[dict[str, Any]], logs: str, micros: int) -> bytes:
    """Return a `SeqResult` as JSON. `micros` is rounded down to tens, so a guest cannot be timed through the value."""
    if not (error or storage or logs):
        return _plain(orjson.dumps(result), micros)
    return orjson.dumps(
        {"error": error, "result": result, "storage": storage, "logs": logs, "micros": micros // 10 * 10}
    )


def _plain(result: bytes, micros: int) -> bytes:
    return b'{"error":"","result":%b,"storage":[],"logs":"","micros":%d}' % (result, micros // 10 * 10)


def field(value: Any, name: str, kind: type) -> Any:
    field = value.get(name) if isinstance(value, dict) else None
    if type(field) is not kind:
        raise InvalidResultError(f"field {name} missing or not {kind.__name__} in {shorten(value)}")
    return field


def shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
