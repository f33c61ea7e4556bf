"""The models of a server: finds a model by the name in a request, and keeps it loaded while the request uses it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Self

from aici_base.errors import AiciError, UnavailableError
from aici_controllers.store import Store
from aici_engine.server.config import RequestLimits
from aici_engine.server.errors import UnknownModelError
from aici_engine.server.service.admission import Admission
from aici_engine.server.service.constraints import Constraints
from aici_engine.server.service.served_model import ModelState, ServedModel
from aici_engine.server.service.service import Service
from aici_engine.server.telemetry.metrics import Metrics

DEFAULT = "default"
_LOAD_TIMEOUT_S = 300.0

_log = logging.getLogger(__name__)


class Models:
    """The models of a server, in the order of the command line. The first answers requests that name no model.

    `admission`: of any model; all share the rates of the keys and the end of the server. A model that is loading may
    take `load_timeout_s`. A context manager: leaving it ends all engines.
    """

    def __init__(
        self,
        models: Sequence[ServedModel],
        *,
        limits: RequestLimits,
        metrics: Metrics,
        store: Store,
        constraints: Constraints,
        load_timeout_s: float = _LOAD_TIMEOUT_S,
    ) -> None:
        self.all = tuple(models)
        self.limits = limits
        self.metrics = metrics
        self.store = store
        self.constraints = constraints
        self.all_failed = asyncio.Event()
        self._load_timeout_s = load_timeout_s
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._by_name = {DEFAULT: self.default}
        for model in self.all:
            self._by_name |= dict.fromkeys(model.names, model)
            model.changed = self._changed

    @classmethod
    def of(cls, service: Service) -> Self:
        """Return the models of a server that has one model, which is always loaded."""
        return cls(
            [ServedModel.of(service)],
            limits=service.limits,
            metrics=service.metrics,
            store=service.store,
            constraints=service.constraints,
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
        async with model.use(self._begin_load, timeout_s=self._load_timeout_s) as service:
            yield service

    async def load(self, model: ServedModel) -> None:
        """Load a model that is not loaded. One model is loaded or unloaded at a time."""
        async with self._turn:
            if model.service is None:
                await model.start()

    async def load_all(self) -> None:
        """Load the models one after the other. Raises the first model's error that cannot be loaded."""
        for model in self.all:
            try:
                await self.load(model)
            except AiciError as error:
                if len(self.all) == 1:
                    raise
                raise error.with_message(f"the model {model.name}: {error.message}") from error

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
        self.stop_loading()
        self.lost(UnavailableError("the server is stopping"))
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(model.stop() for model in self.all))

    def _begin_load(self, model: ServedModel) -> asyncio.Future[None]:
        _log.info("loading %s", model.name)
        task = asyncio.get_running_loop().create_task(self.load(model))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _changed(self) -> None:
        if all(each.state is ModelState.FAILED for each in self.all):
            self.all_failed.set()
