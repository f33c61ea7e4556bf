"""The pre, mid and post callbacks of one guest, and the setup before them: arguments in, `SeqResult` JSON out.

Any failure makes the guest sticky-failed: its memory can no longer be trusted, so later callbacks are not run.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from aici_runtime.guest import Guest, GuestError, GuestTimeoutError
from aici_runtime.host import Host
from aici_runtime.ids import TokenId
from aici_runtime.masks import MaskRegion

_MAX_FF_ROUNDS = 10
_MAX_BACKTRACK = 2**32 - 1
_CONTINUE = {"suspend": False, "num_forks": 1, "ff_tokens": []}
_SAMPLE: dict[str, object] = {"SampleWithBias": {}}


class CallbackError(Exception):
    """What the guest returned breaks a rule of the interface."""


class SetupError(Exception):
    """The guest did not come up. The message carries its log."""


@dataclass(frozen=True, slots=True)
class PostArg:
    tokens: Sequence[int]
    backtrack: int


class Callbacks:
    """Owns no process state: a fork of the process forks it too."""

    def __init__(
        self, *, guest: Guest, host: Host, masks: MaskRegion, vocab_size: int, eos_token: TokenId, max_forks: int
    ) -> None:
        self._guest = guest
        self._host = host
        self._masks = masks
        self._vocab_size = vocab_size
        self._eos_token = eos_token
        self._max_forks = max_forks
        self._handle = 0
        self._failed = False

    def setup(self, prompt: Sequence[int]) -> None:
        """Everything before the first step. Raises SetupError."""
        try:
            if self._guest.exports("_initialize"):
                self._guest.call("_initialize")
            self._guest.call("aici_init")
            self._handle = self._guest.call("aici_create")
            self._run("aici_init_prompt", {"prompt": list(prompt)})
        except Exception as error:  # the boundary to the guest: any failure is the guest's
            raise SetupError(self._explain("setup", error)) from error

    def post(self, arg: PostArg) -> bytes:
        def body() -> object:
            # The engine counts the token that was sampled and never appended; the guest never saw it.
            answer = self._run(
                "aici_post_process", {"tokens": list(arg.tokens), "backtrack": max(0, arg.backtrack - 1)}
            )
            return {"stop": _field(answer, "stop", bool)}

        return self._result("post", body, failed={"stop": True})

    def pre(self) -> bytes:
        return self._result("pre", self._pre_rounds, failed=_CONTINUE)

    def mid(self, fork_group: Sequence[int], row: int) -> bytes:
        def body() -> object:
            answer = self._run("aici_mid_process", {"fork_group": list(fork_group)}, takes_mask=True)
            return self._decide(answer, row)

        return self._result("mid", body, failed=None)

    def _pre_rounds(self) -> object:
        """Ask again after every batch of forced tokens, so that the engine sees one batch."""
        ff_tokens: list[TokenId] = []
        for _ in range(_MAX_FF_ROUNDS):
            answer = self._run("aici_pre_process", {})
            suspend = _field(answer, "suspend", bool)
            num_forks = _field(answer, "num_forks", int)
            more = self._tokens(answer)
            if num_forks < 0 or (suspend and num_forks != 1):
                raise CallbackError(f"num_forks={num_forks} with suspend={suspend}")
            if num_forks > self._max_forks:
                raise CallbackError(f"too many forks (max={self._max_forks})")
            ff_tokens += more
            if not more:
                return {"suspend": suspend, "num_forks": num_forks, "ff_tokens": ff_tokens}
            if num_forks != 1 or suspend:
                raise CallbackError("ff_tokens need num_forks == 1 and suspend == false")
            if _field(self._run("aici_post_process", {"tokens": more, "backtrack": 0}), "stop", bool):
                return {"suspend": False, "num_forks": 0, "ff_tokens": ff_tokens}
        raise CallbackError("too many ff_tokens rounds from pre_process")

    def _decide(self, answer: Any, row: int) -> object:
        if answer == "Stop":
            self._masks.write_only(row, [self._eos_token])
            return None
        if answer == _SAMPLE:
            self._masks.write(row, self._host.mask)
            return None
        if not (isinstance(answer, dict) and list(answer) == ["Splice"]):
            raise CallbackError(f"invalid result of mid_process: {_shorten(answer)}")
        backtrack = _field(answer["Splice"], "backtrack", int)
        ff_tokens = self._tokens(answer["Splice"])
        if not 0 <= backtrack < _MAX_BACKTRACK:
            raise CallbackError(f"backtrack out of range: {backtrack}")
        if backtrack > 0:
            self._masks.write_everything(row)
            return {"ff_tokens": ff_tokens, "backtrack": backtrack + 1}
        if not ff_tokens:
            raise CallbackError("empty Splice (both backtrack == 0 and ff_tokens == [])")
        self._masks.write_only(row, ff_tokens[:1])
        return {"ff_tokens": ff_tokens, "backtrack": 0}

    def _tokens(self, answer: Any) -> list[TokenId]:
        tokens: list[TokenId] = _field(answer, "ff_tokens", list)
        for index, token in enumerate(tokens):
            if type(token) is not int or not 0 <= token < self._vocab_size:
                raise CallbackError(f"ff_token out of range ({token} >= {self._vocab_size} at {index})")
        return tokens

    def _run(self, name: str, arg: object, *, takes_mask: bool = False) -> Any:
        self._host.begin_call(orjson.dumps(arg), takes_mask=takes_mask)
        self._guest.call(name, self._handle)
        if self._host.result is None:
            raise CallbackError("aici_host_return_process_result not called")
        try:
            return orjson.loads(self._host.result)
        except orjson.JSONDecodeError as error:
            raise CallbackError(f"invalid JSON from {name}: {error}") from error

    def _result(self, label: str, body: Callable[[], object], *, failed: object) -> bytes:
        started = time.perf_counter_ns()
        error = ""
        try:
            if self._failed:
                raise GuestError("Previous WASM Error")
            result = body()
        except GuestTimeoutError:
            self._failed = True
            result, error = None, "Worker: timeout"
        except Exception as raised:  # noqa: BLE001  the boundary to the guest: any failure is the guest's
            result, error = failed, self._explain(label, raised)
        logs = self._host.take_log()
        return encode_result(
            result=result,
            error=error,
            storage=self._host.take_written(),
            logs=f"{logs}\n{error}" if error else logs,
            micros=(time.perf_counter_ns() - started) // 1000,
        )

    def _explain(self, label: str, error: Exception) -> str:
        """The text of an error as users know it: log, backtrace, root cause."""
        if self._failed:
            return f"Error ({label}): {error}"
        self._failed = True
        cause = self._host.stop_message or str(error)
        log = self._host.take_log()
        text = f"Error ({label}): {log}\n{cause}" if log else f"Error ({label}): {cause}"
        self._host.log(log.encode())
        return text


def encode_result(*, result: object, error: str, storage: list[dict[str, Any]], logs: str, micros: int) -> bytes:
    """`micros` is rounded down to 10, so that nothing can be timed through it."""
    return orjson.dumps(
        {"error": error, "result": result, "storage": storage, "logs": logs, "micros": micros // 10 * 10}
    )


def _field(value: Any, name: str, kind: type) -> Any:
    field = value.get(name) if isinstance(value, dict) else None
    if type(field) is not kind:
        raise CallbackError(f"field {name} missing or not {kind.__name__} in {_shorten(value)}")
    return field


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
