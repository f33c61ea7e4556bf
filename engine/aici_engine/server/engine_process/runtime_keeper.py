"""Keeps a controller runtime running beside the engine."""

import logging
import time
from collections.abc import Callable, Sequence

from aici_base.errors import AiciError
from aici_runtime.client import Runtime, RuntimeConfig

_MAX_QUICK_DEATHS = 3
_QUICK_S = 10.0
_PAUSE_S = 1.0

_log = logging.getLogger(__name__)


class RuntimeKeeper:
    """Keeps a controller runtime running: when the runtime dies, the engine gets a new one with the same modules."""

    def __init__(self, config: RuntimeConfig, modules: Sequence[str]) -> None:
        self._config = config
        self._modules = modules
        self._runtime = Runtime(config)
        self._closing = False

    def wait_ready(self) -> Runtime:
        self._make_ready(self._runtime)
        return self._runtime

    def keep(self, use: Callable[[Runtime], None]) -> None:
        """Run until `close`, in a thread of its own. Call `use` with every new runtime."""
        quick_deaths = 0
        while True:
            ended_early = self._runtime.wait_ended(_QUICK_S)
            if not ended_early:
                self._runtime.wait_ended()
            quick_deaths = quick_deaths + 1 if ended_early else 0
            if self._closing:
                return
            self._runtime.close()
            if quick_deaths > _MAX_QUICK_DEATHS:
                _log.error("the controller runtime keeps dying: requests with a controller fail from now on")
                return
            _log.warning("the controller runtime died; starting another")
            try:
                self._runtime = Runtime(self._config)
                self._make_ready(self._runtime)
                use(self._runtime)
            except (AiciError, OSError):  # OSError: no memory for the runtime, or a module's file is gone
                _log.exception("the new controller runtime did not come up")
                self._runtime.close()
                time.sleep(_PAUSE_S)

    def close(self) -> None:
        self._closing = True
        self._runtime.close()

    def _make_ready(self, runtime: Runtime) -> None:
        runtime.wait_ready()
        for path in self._modules:
            with open(path, "rb") as file:
                runtime.mk_module(file.read())
