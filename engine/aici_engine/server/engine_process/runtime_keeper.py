"""Keeps a controller runtime running beside the engine."""

import hashlib
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from aici_base.errors import AiciError, UnavailableError
from aici_controllers.catalog import guests_dir
from aici_runtime.client import Runtime, RuntimeConfig

_MAX_QUICK_DEATHS = 3
_QUICK_S = 10.0
_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 4.0

_log = logging.getLogger(__name__)


class Engine(Protocol):
    """The engine of the runtime."""

    def use_runtime(self, runtime: Runtime) -> None: ...

    def expect_runtime(self, is_expected: bool) -> None: ...


class RuntimeKeeper:
    """Keeps a controller runtime running: when the runtime dies, the engine gets a new one with the same modules.

    After more than `_MAX_QUICK_DEATHS` runtimes in a row that lived for less than `_QUICK_S` seconds or did not start,
    a pause precedes each further runtime, and each pause is longer. Controlled requests fail during a pause.
    """

    def __init__(self, config: RuntimeConfig, modules: Sequence[str]) -> None:
        self._config = config
        self._modules = modules
        self._runtime = Runtime(config)
        self._closing = threading.Event()
        self.lacking: dict[str, str] = {}
        """Module id → name of the modules that could not be compiled, such as on a full disk."""

    def wait_ready(self) -> Runtime:
        self._make_ready(self._runtime)
        return self._runtime

    def keep(self, engine: Engine) -> None:
        """Run until `close`, in a thread of its own."""
        engine.expect_runtime(True)
        quick_deaths = 0
        while not self._closing.is_set():
            ended_early = self._runtime.wait_ended(_QUICK_S)
            if not ended_early:
                self._runtime.wait_ended()
            if self._closing.is_set():
                return
            quick_deaths = quick_deaths + 1 if ended_early else 1
            self._runtime.close()
            _log.warning("the controller runtime died; starting another")
            while not self._starts_another(engine, quick_deaths):
                quick_deaths += 1

    def _starts_another(self, engine: Engine, quick_deaths: int) -> bool:
        """Start a runtime, after a pause if several have died. Return whether the runtime came up, or none is
        wanted any more."""
        if quick_deaths > _MAX_QUICK_DEATHS:
            pause_s = min(_LONGEST_PAUSE_S, _PAUSE_S * 2.0 ** (quick_deaths - _MAX_QUICK_DEATHS - 1))
            _log.error("the controller runtime keeps dying: requests with a controller fail for %g s", pause_s)
            engine.expect_runtime(False)
            self._closing.wait(pause_s)
        if self._closing.is_set():
            return True
        engine.expect_runtime(True)
        try:
            self._runtime = Runtime(self._config)
            if self._closing.is_set():
                self._runtime.close()
                return True
            self._make_ready(self._runtime)
            engine.use_runtime(self._runtime)
        except (AiciError, OSError):  # OSError: no memory for the runtime, or a module's file is gone
            _log.exception("the new controller runtime did not come up")
            self._runtime.close()
            self._closing.wait(_PAUSE_S)
            return False
        return True

    def close(self) -> None:
        self._closing.set()
        self._runtime.close()

    def _make_ready(self, runtime: Runtime) -> None:
        """Wait until the runtime has all modules. The shipped are known to be controllers, so they compile later."""
        runtime.wait_ready()
        self.lacking.clear()
        why = ""
        # Modules are compiled in this order: many that take half a second are not behind one that takes three.
        for path in sorted(map(Path, self._modules), key=lambda path: path.stat().st_size):
            binary = path.read_bytes()
            try:
                runtime.mk_module(binary, compile_later=path.parent == guests_dir())
            except UnavailableError as error:
                self.lacking[hashlib.sha256(binary).hexdigest()] = path.stem
                why = why or error.message
        if self.lacking:
            runtime.ping()  # raises if the runtime has died: then the modules are not at fault
            _log.warning("requests with these controllers fail: %s. %s", ", ".join(self.lacking.values()), why)
