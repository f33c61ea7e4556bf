"""Calling a guest: arguments in, `SeqResult` JSON out, whatever the guest does.

Any failure makes the guest sticky-failed: its memory can no longer be trusted, so later callbacks are not run. What the
callbacks mean is in `driver_v1.py` and `driver_v2.py`, one for each interface; either serves both op sets.
"""

import contextlib
import copy
import time
from abc import ABC, abstractmethod
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
    """What the guest returned breaks a rule of the interface."""


class NotEnabledError(Exception):
    """The guest asked for what the engine has not."""


class SetupError(Exception):
    """The guest did not come up. The message carries its log."""


@dataclass(frozen=True, slots=True)
class DriverContext:
    """What callbacks need to know of the runtime."""

    masks: MaskRegion
    vocab_size: int
    eos_token: TokenId
    max_forks: int
    capabilities: frozenset[str]
    timeout_text: Callable[[str], str]
    """What a guest is told whose time was over in mid, pre or post."""


class GuestDriver(ABC):
    """One guest. Owns no process state: a fork of the process forks it too."""

    _masks_in_pre = False
    """Then pre has the time of mid."""

    def __init__(self, *, guest: Guest, host: HostFunctions, state: GuestState, context: DriverContext) -> None:
        self._guest = guest
        self._host = host
        self._state = state
        self._context = context
        self._bits = context.masks.bits
        self.handle = 0
        """What `aici_create` returned."""
        self._failed = False
        self.said = b""
        """The latest result; nothing where it failed."""
        self.is_silent = True
        """No log and no variables came with it."""
        self._timeout = ""
        """What is said of a guest whose time was over: the same for ever."""

    def cloned(self, guest: Guest, state: GuestState) -> Self:
        """For a fork in the same process."""
        clone = copy.copy(self)
        clone._guest, clone._state = guest, state
        return clone

    @property
    def has_failed(self) -> bool:
        return self._failed

    def create(self) -> None:
        """All of the set-up that comes before the prompt. Raises SetupError."""
        with self._setting_up():
            if self._guest.exports("_initialize"):
                self._guest.call("_initialize")
            self._guest.call("aici_init")
            self.handle = self._guest.call("aici_create")

    def init_prompt(self, prompt: Callable[[], Sequence[int]]) -> list[TokenId]:
        """Returns the prompt that the engine is to use. Raises SetupError.

        `prompt` is called when the guest looks at it, or when it has returned; several times.
        """
        with self._setting_up():
            self._state.begin_late_call(lambda: orjson.dumps({"prompt": list(prompt())}))
            answer = self._parsed("aici_init_prompt", self._returned("aici_init_prompt"))
            given = [TokenId(token) for token in prompt()]
            return given if answer == {} else self._tokens(answer, "prompt")

    # The op set of pre, mid and post.

    @abstractmethod
    def post(self, tokens: bytes, backtrack: int) -> bytes:
        """`tokens`: a list as JSON; `backtrack` counts the token that was sampled and never appended."""

    @abstractmethod
    def pre(self) -> bytes: ...

    @abstractmethod
    def mid(self, fork_group: bytes) -> tuple[bytes, bytes | bytearray | None]:
        """The result, and the bits of the row unless the guest has failed. `fork_group`: a list as JSON."""

    # The op set of mid alone.

    @abstractmethod
    def step(self, argument: bytes, row: int) -> tuple[bytes, list[bytearray]]:
        """The result, and the masks that it names: the first as `row`, number k > 0 as -k. `argument`: as a guest of
        the later interface reads it."""

    # For both.

    def _run(self, name: str, argument: bytes, *, takes_mask: bool = False) -> bytes:
        """What the guest returned: see `_parsed`."""
        self._state.begin_call(argument, takes_mask=takes_mask)
        return self._returned(name)

    def _returned(self, name: str) -> bytes:
        state = self._state
        self._host.guest = state
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
        """`body` returns a result as JSON."""
        started = time.perf_counter_ns()
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
        micros = (time.perf_counter_ns() - started) // 1000
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
        """The text of an error as users know it: log, backtrace, root cause."""
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
    """`micros` is rounded down to 10, so that nothing can be timed through it."""
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
