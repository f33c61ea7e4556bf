"""The models of a server: finds a model by the name in a request, and keeps it loaded while the request uses it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, Self

from aici_base.errors import AiciError, UnavailableError
from aici_controllers.store import Store
from aici_engine.server.config import ModelLoading, RequestLimits
from aici_engine.server.errors import UnknownModelError
from aici_engine.server.service.admission import Admission
from aici_engine.server.service.constraints import Constraints
from aici_engine.server.service.served_model import ModelState, ServedModel
from aici_engine.server.service.service import Service
from aici_engine.server.service.template_processes import TemplateProcesses
from aici_engine.server.telemetry.metrics import Metrics

DEFAULT = "default"
_MIB = 1 << 20
_TIMER_S = 0.01

_log = logging.getLogger(__name__)


class Models:
    """The models of a server, in the order of the command line. The first answers requests that name no model.

    `admission`: of any model; all share the rates of the keys and the end of the server. A context manager: leaving it
    ends all engines.
    """

    def __init__(
        self,
        models: Sequence[ServedModel],
        *,
        limits: RequestLimits,
        metrics: Metrics,
        store: Store,
        constraints: Constraints,
        templates: TemplateProcesses | None = None,
        loading: ModelLoading | None = None,
    ) -> None:
        self.all = tuple(models)
        self.limits = limits
        self.metrics = metrics
        self.store = store
        self.constraints = constraints
        self._templates = templates
        self.all_failed = asyncio.Event()
        self._loading = loading or ModelLoading()
        self._turn = asyncio.Lock()
        self._one_is_idle = asyncio.Event()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._by_name = {DEFAULT: self.default}
        for model in self.all:
            self._by_name |= dict.fromkeys(model.names, model)
            model.changed = self._changed

    @classmethod
    def of(cls, service: Service) -> Self:
        """Return the models of a server with one model, which is always loaded."""
        return cls(
            [ServedModel.of(service)],
            limits=service.limits,
            metrics=service.metrics,
            store=service.store,
            constraints=service.constraints,
            templates=service.templates,
        )

    @property
    def default(self) -> ServedModel:
        return self.all[0]

    @property
    def admission(self) -> Admission:
        return self.default.admission

    @property
    def num_admitted(self) -> int:
        """Sequences that run or wait, of all models."""
        return sum(model.admission.num_admitted for model in self.all)

    def find(self, name: str | None) -> ServedModel:
        """Return the model of a name or alias; None is the first model. Raises UnknownModelError."""
        if name is None:
            return self.default
        if (model := self._by_name.get(name)) is None:
            served = ", ".join(model.name for model in self.all)
            raise UnknownModelError(f"the model {name} is not served here", hint=f"this server serves {served}")
        return model

    @contextlib.asynccontextmanager
    async def lease(self, name: str | None) -> AsyncIterator[Service]:
        """Keep a model loaded for the context, and load it first if needed.

        Raises UnknownModelError, UnavailableError if the model cannot be loaded in time, and RateLimitError if too many
        requests wait for it.
        """
        model = self.find(name)
        if model.service is None and self.admission.draining:
            raise UnavailableError("the server is stopping", hint="use another server, or try again later")
        async with model.use(self._begin_load, timeout_s=self._loading.timeout_s) as service:
            yield service

    async def load(self, model: ServedModel) -> None:
        """Load a model that is not loaded. One model is loaded or unloaded at a time.

        Raises UnavailableError if the model does not fit into the memory of all models, or nobody waits for it any
        more.
        """
        async with self._turn:
            if model.service is None:
                await self._make_room(model)
                await model.start()
                await self._check_size(model)

    async def load_all(self) -> None:
        """Load the models one after the other, as far as they fit. Raises the first error of a load."""
        for model in self.all:
            if self._excess(model) > 0:
                _log.warning("%s is loaded on demand: the memory for models is full", model.name)
                continue
            try:
                await self.load(model)
            except AiciError as error:
                if len(self.all) == 1:
                    raise
                raise error.with_message(f"the model {model.name}: {error.message}") from error
            self._changed(model)

    def stop_loading(self) -> None:
        """End all loading. The requests that wait for a model get UnavailableError."""
        for task in self._tasks:
            task.cancel()

    def lost(self, why: AiciError) -> None:
        """End all streams with `why`."""
        for model in self.all:
            if model.service is not None:
                model.service.client.lost(why)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self.stop_loading()
        self.lost(UnavailableError("the server is stopping"))
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(model.stop() for model in self.all))
        if self._templates is not None:
            await self._templates.close()

    # Memory.

    def _excess(self, model: ServedModel) -> int:
        """Return the bytes that the loaded models and `model` take above the limit; at most 0 if all models fit."""
        if self._loading.memory_bytes is None:
            return 0
        return (
            sum(each.memory_bytes for each in self._loaded_beside(model))
            + model.memory_bytes
            - self._loading.memory_bytes
        )

    def _loaded_beside(self, model: ServedModel) -> list[ServedModel]:
        return [each for each in self.all if each is not model and each.service is not None]

    async def _make_room(self, model: ServedModel) -> None:
        """Unload idle models, the least recently used first, until `model` fits. While all are used, wait."""
        while self._excess(model) > 0 and (others := self._loaded_beside(model)):
            if not model.num_users:
                raise UnavailableError(f"nobody waits for the model {model.name} any more")
            if idle := [each for each in others if not each.num_users]:
                await self._unload(min(idle, key=lambda each: each.last_used), f"{model.name} needs its memory")
            else:
                self._one_is_idle.clear()
                await self._one_is_idle.wait()

    async def _check_size(self, model: ServedModel) -> None:
        """Unload a model that takes more than all models may take together."""
        limit = self._loading.memory_bytes
        if limit is not None and model.memory_bytes > limit:
            await model.stop()
            size = f"{model.memory_bytes / _MIB:.0f} MiB"
            raise UnavailableError(
                f"{model.name} takes {size}: all models may take {limit / _MIB:.0f} MiB together",
                hint="the server's administrator can allow more memory, or a shorter context",
                cli_hint="raise --models-memory, or lower --max-context or --max-num-seqs",
            )

    async def _unload(self, model: ServedModel, why: str) -> None:
        _log.info("unloading %s: %s", model.name, why)
        await model.stop()

    # Events.

    def _changed(self, model: ServedModel) -> None:
        """Take note that a model has lost its last user, or has failed."""
        self._one_is_idle.set()
        if all(each.state is ModelState.FAILED for each in self.all):
            self.all_failed.set()
        if self._loading.unload_after_s is not None:
            self._unload_later(model, self._loading.unload_after_s)

    def _unload_later(self, model: ServedModel, delay_s: float) -> None:
        if (timer := self._timers.pop(model.name, None)) is not None:
            timer.cancel()
        self._timers[model.name] = asyncio.get_running_loop().call_later(
            delay_s, lambda: self._begin(self._unload_idle(model))
        )

    async def _unload_idle(self, model: ServedModel) -> None:
        after_s = self._loading.unload_after_s
        async with self._turn:
            if model.service is None or model.num_users or after_s is None:
                return
            # A timer may fire a little early.
            if (missing_s := after_s - model.idle_s) > _TIMER_S:
                self._unload_later(model, missing_s)
            else:
                await self._unload(model, f"not used for {after_s:g} s")

    def _begin_load(self, model: ServedModel) -> asyncio.Future[None]:
        _log.info("loading %s", model.name)
        return self._begin(self.load(model))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
