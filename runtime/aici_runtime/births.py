"""`instantiate`: from what an engine asks for to a guest that waits for its first step. Many at once, in threads."""

import socket
import threading
from collections.abc import Mapping

import orjson

from aici_runtime import frames
from aici_runtime.envelope import Request, field, uints
from aici_runtime.errors import ControllerError, UnavailableError, UsageError
from aici_runtime.registry import Registry
from aici_runtime.roster import News
from aici_runtime.slots import Slot, SlotTable
from aici_runtime.spawner import SpawnerSockets

GRACE_S = 0.2
_TIMEOUT_TEXT = "instantiate: timeout"


class Births:
    def __init__(
        self,
        *,
        table: SlotTable,
        registry: Registry,
        spawner: SpawnerSockets,
        news: News,
        generation: int,
        vocab_size: int,
        max_init_s: float,
    ) -> None:
        self._table = table
        self._registry = registry
        self._spawner = spawner
        self._news = news
        self._generation = generation
        self._vocab_size = vocab_size
        self._max_init_s = max_init_s
        self._slot_lock = threading.Lock()

    def instantiate(self, req_id: str, request: Request) -> None:
        """Returns when the guest waits for its first step and the stepper has been told of it."""
        self._start_guest(req_id, self._setup(request))

    def _setup(self, request: Request) -> dict[str, object]:
        """What the worker needs to know."""
        if isinstance(request.body.get("prompt"), str):
            raise UsageError("a prompt as text is not supported", hint="send its tokens")
        prompt = uints(request.body, "prompt")
        for token in prompt:
            if token >= self._vocab_size:
                raise UsageError(f"prompt token out of range: {token}")
        module_id = self._registry.resolve(field(request.body, "module_id", str))
        return {
            "compiled": str(self._registry.compiled(module_id)),
            "module_arg": _module_arg(request.body.get("module_arg")),
            "prompt": prompt,
        }

    def _start_guest(self, req_id: str, setup: Mapping[str, object]) -> None:
        with self._slot_lock:
            slot = self._table.take(self._table.side)
        try:
            self._await_guest(slot, setup)
        except BaseException:
            self._news.failed(slot)
            raise
        self._news.ready(req_id, slot)

    def _await_guest(self, slot: Slot, setup: Mapping[str, object]) -> None:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                self._spawner.spawn(slot.index, self._generation, theirs)
            refusal = frames.receive(ours)
            if refusal is None:
                raise UnavailableError("cannot start a guest process: it was killed", hint="try again")
            if refusal:
                raise UnavailableError(refusal.decode(), hint="end other processes, or raise their limit (ulimit -u)")
            ours.settimeout(self._max_init_s + GRACE_S)
            try:
                frames.send(ours, orjson.dumps(setup))
                answer = frames.receive(ours)
            except TimeoutError as error:
                raise ControllerError(_TIMEOUT_TEXT) from error
            except BrokenPipeError:
                answer = None
        failure = "Worker: died during setup" if answer is None else str(orjson.loads(answer)["error"])
        if failure:
            raise ControllerError(failure)


def _module_arg(value: object) -> str:
    try:
        return value if isinstance(value, str) else orjson.dumps(value).decode()
    except TypeError as error:
        raise UsageError(f"module_arg is nested too deeply: {error}") from error
