"""One model of a server: loads the engine when a request needs it, and knows who uses the model."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from enum import StrEnum
from pathlib import Path

from aici_base.errors import AiciError, RateLimitError, UnavailableError
from aici_engine.server.fleet.fleet import ReplicaFleet
from aici_engine.server.link.model_client import Engines, ModelClient
from aici_engine.server.service.admission import Admission
from aici_engine.server.service.service import Service
from aici_runtime.process import give_back_memory

_RETRY_AFTER_S = 1.0
_RETRY_FAILED_S = 60.0

_log = logging.getLogger(__name__)


class ModelState(StrEnum):
    """HANGING: the engine makes no progress, and is replaced soon. RESTARTING: the engine has died, and a new one is
    starting. FAILED: the last engine could not be kept running."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    HANGING = "hanging"
    RESTARTING = "restarting"
    FAILED = "failed"


class ServedModel:
    """`is_kept`: the model is loaded as long as the server runs. `planned_bytes`: weights and a full cache, as far as
    the files tell; a loaded model may take less. `engines` starts the processes of the model, and `service` makes the
    service over their client. `parent`: of a model with an adapter, the name of the model without.

    `changed` is called when the model has lost its last user, and when it has failed: its owner may then unload it.
    """

    def __init__(
        self,
        name: str,
        *,
        model_dir: Path,
        admission: Admission,
        engines: Callable[[], Engines],
        service: Callable[[ModelClient], Service],
        aliases: Sequence[str] = (),
        parent: str | None = None,
        is_kept: bool = True,
        planned_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.aliases = tuple(aliases)
        self.parent = parent
        self.model_dir = model_dir
        self.is_kept = is_kept
        self.admission = admission
        self.memory_bytes = planned_bytes
        self._max_len: int | None = None
        self.num_users = 0
        self.num_loads = 0
        self.last_used = clock()
        self.changed: Callable[[ServedModel], None] = lambda _: None
        self._make_engines = engines
        self._make_service = service
        self._clock = clock
        self._engines: Engines | None = None
        self._service: Service | None = None
        self._watching: asyncio.Task[None] | None = None
        self._loading: asyncio.Future[None] | None = None
        self._failed_at: float | None = None
        self._num_restarts = 0

    @classmethod
    def of(cls, service: Service) -> "ServedModel":
        """Return a model over a service that lives as long as the server."""

        def no_engines() -> Engines:
            raise AssertionError("this model is never loaded: it is always there")

        model = cls(
            service.name,
            model_dir=service.model_dir,
            admission=service.admission,
            engines=no_engines,
            service=lambda _: service,
        )
        model._service = service
        return model

    @property
    def max_len(self) -> int | None:
        """The most tokens of a sequence; None before the first load."""
        return self._max_len if self._service is None else self._service.info.max_len

    @property
    def names(self) -> set[str]:
        return {self.name, str(self.model_dir), *self.aliases}

    @property
    def service(self) -> Service | None:
        """The service while the model is loaded. Only a lease keeps the model loaded."""
        return self._service

    @property
    def fleet(self) -> ReplicaFleet | None:
        """The replicas of the model, if it has several."""
        return self._engines if isinstance(self._engines, ReplicaFleet) else None

    @property
    def state(self) -> ModelState:
        if self._service is not None:
            if self._service.client.is_hanging:
                return ModelState.HANGING
            return ModelState.LOADED if self._service.client.is_ready else ModelState.RESTARTING
        if self._loading is not None:
            return ModelState.LOADING
        return ModelState.UNLOADED if self._failed_at is None else ModelState.FAILED

    @property
    def engine_state(self) -> str:
        """The state of the only engine, in the words of `ReplicaState`."""
        words = {ModelState.LOADED: "up", ModelState.LOADING: "starting", ModelState.UNLOADED: "standby"}
        return words.get(self.state, str(self.state))

    @property
    def num_streams(self) -> int:
        """Sequences in the engine or on their way there."""
        return 0 if self.service is None else self.service.client.num_streams

    @property
    def can_answer(self) -> bool:
        """Whether a request for the model can succeed now, perhaps after a wait."""
        return self.state not in (ModelState.HANGING, ModelState.RESTARTING, ModelState.FAILED)

    @property
    def num_restarts(self) -> int:
        """Engines that were started because the engine before had died."""
        return self._num_restarts + (0 if self._service is None else self._service.client.num_restarts)

    @property
    def idle_s(self) -> float:
        """Seconds since the last use; 0 while the model is used."""
        return 0.0 if self.num_users else self._clock() - self.last_used

    @contextlib.asynccontextmanager
    async def use(
        self, load: Callable[["ServedModel"], asyncio.Future[None]], *, timeout_s: float
    ) -> AsyncIterator[Service]:
        """Keep the model loaded for the context. If the model is not loaded, call `load` and wait for its result.

        Requests that wait for the same load go on in the order in which they came. Raises RateLimitError if too many
        wait, UnavailableError if the model cannot be loaded or takes longer than `timeout_s`.
        """
        if self._service is None and self.num_users >= self.admission.capacity:
            raise RateLimitError(
                f"{self.num_users} requests wait for the model {self.name}: the queue is full",
                retry_after_s=_RETRY_AFTER_S,
            )
        self.num_users += 1
        try:
            if self._service is None:
                await self._loaded(load, timeout_s)
            assert self._service is not None
            yield self._service
        finally:
            self.num_users -= 1
            self.last_used = self._clock()
            if not self.num_users:
                self.changed(self)

    async def _loaded(self, load: Callable[["ServedModel"], asyncio.Future[None]], timeout_s: float) -> None:
        if self._failed_at is not None and self._clock() - self._failed_at < _RETRY_FAILED_S:
            raise UnavailableError(
                f"the engine of the model {self.name} keeps dying", hint="the server's log has its last output"
            )
        if self._loading is None:
            self._loading = load(self)
            self._loading.add_done_callback(self._load_ended)
        loading = self._loading
        try:
            async with asyncio.timeout(timeout_s) as limit:
                # Shielded: the others still wait when this request's client leaves.
                await asyncio.shield(loading)
        except TimeoutError:
            if not limit.expired():
                raise
            raise UnavailableError(
                f"the model {self.name} is not there after {timeout_s:g} s: it is still loading, or waits for memory",
                hint="try again later",
            ) from None
        except AiciError as error:
            # The engine's error may blame the user of the command line, such as a UsageError: not this request.
            why = f"the model {self.name} cannot be loaded: {error.message}"
            raise UnavailableError(why, hint="the server's log has more") from error
        except asyncio.CancelledError:
            if not loading.cancelled():
                raise
            raise UnavailableError("the server is stopping", hint="use another server, or try again later") from None

    def _load_ended(self, loading: asyncio.Future[None]) -> None:
        self._loading = None
        if not loading.cancelled():
            loading.exception()  # whoever waits gets it; without this line, asyncio logs it where nobody waits any more

    async def start(self) -> None:
        """Start the engines. Raises the error of a failed start. Called by one task at a time."""
        self._failed_at = None
        engines = self._make_engines()
        await engines.__aenter__()
        try:
            service = await asyncio.to_thread(self._service_of, engines.client)
        except BaseException:
            await engines.__aexit__()
            raise
        self._engines, self._service = engines, service
        self._max_len = service.info.max_len
        self.memory_bytes = service.info.memory_bytes or self.memory_bytes
        self.num_loads += 1
        self.last_used = self._clock()
        self._watching = asyncio.get_running_loop().create_task(self._watch(engines))

    def _service_of(self, client: ModelClient) -> Service:
        service = self._make_service(client)
        give_back_memory()  # reading a tokenizer frees twice what stays
        return service

    async def stop(self, why: AiciError | None = None) -> None:
        """End the engines. Streams that still run fail with `why`. No effect if the model is not loaded."""
        self._num_restarts = self.num_restarts
        engines, self._engines = self._engines, None
        service, self._service = self._service, None
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if service is not None and why is not None:
            service.client.lost(why)
        if engines is not None:
            await engines.__aexit__()

    async def _watch(self, engines: Engines) -> None:
        await engines.failed.wait()
        self._failed_at = self._clock()
        self._watching = None
        _log.error("the engine of the model %s keeps dying", self.name)
        await self.stop()
        self.changed(self)
