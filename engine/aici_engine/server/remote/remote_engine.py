"""An engine on another machine, for a `Supervisor`: a connection to the host in the place of a process."""

import asyncio
from collections.abc import Callable
from typing import Any

from aici_base.errors import AiciError, NotFoundError, UnavailableError
from aici_controllers.store import Store
from aici_engine.cluster.frames import Refused
from aici_engine.cluster.link import LinkLostError
from aici_engine.cluster.token import ClusterToken
from aici_engine.server.link import wire
from aici_engine.server.link.client import EngineClient
from aici_engine.server.link.process_config import ProcessConfig
from aici_engine.server.remote.host_link import HostLink
from aici_engine.server.remote.host_messages import (
    EngineEnded,
    EngineSilence,
    FromHost,
    HasModules,
    ModuleBytes,
    StartEngine,
    StopEngine,
    WireFrame,
    settings_of,
)
from aici_engine.server.remote.model_in_folder import digest_of
from aici_engine.server.remote.places import EnginePlace


class RemoteEngine:
    """Finds a machine, and lets the machine's host start an engine. The members mean the same as in `EngineProcess`.

    `patience_s`: how long to wait for a machine; None: without an end. `store`: has the controllers of the server.
    """

    def __init__(
        self,
        client: EngineClient,
        *,
        config: ProcessConfig,
        died: Callable[["RemoteEngine", AiciError], None],
        place: EnginePlace,
        patience_s: float | None,
        token: ClusterToken,
        store: Store,
    ) -> None:
        self.was_useful = False
        self._client = client
        self._config = config
        self._died = died
        self._token = token
        self._store = store
        self._link: HostLink | None = None
        self._known_modules: set[str] = set()
        self._silent_s = 0.0
        self._is_closed = False
        self.ready: asyncio.Future[wire.EngineInfo] = asyncio.get_running_loop().create_future()
        self._starting = asyncio.get_running_loop().create_task(self._start(place, patience_s))

    def serve(self) -> None:
        """Connect the client. `ready` must be done."""
        self._client.connected(self, self.ready.result(), lambda: self._silent_s)

    def send(self, message: wire.ToEngine) -> None:
        """Send to the engine; never blocks. Before the first request for a controller that the host lacks, send the
        controller."""
        frame = wire.encode([message])
        if self._link is None:
            return
        module_id = message.controller if isinstance(message, wire.Submit) else None
        if module_id is not None and module_id not in self._known_modules:
            self._known_modules.add(module_id)
            try:
                self._link.send(ModuleBytes(module_id), self._store.read(module_id))
            except NotFoundError:  # removed since the request was checked: the engine says so
                self._known_modules.discard(module_id)
        self._link.send(WireFrame(), frame)

    async def close(self) -> None:
        """End the engine."""
        self._is_closed = True
        self._starting.cancel()
        await asyncio.wait([self._starting])
        if self._link is not None:
            if self._link.ready.done():
                self._link.send(StopEngine())
            await self._link.close()

    async def _start(self, place: EnginePlace, patience_s: float | None) -> None:
        try:
            model = await asyncio.to_thread(digest_of, self._config.engine.model_dir)
            address = await place.find(patience_s)
            self._link = HostLink(self._token, address, received=self._received, lost=self._ended)
            await self._link.ready
            self._link.send(StartEngine(model, settings_of(self._config.engine), self._config.max_forks))
        except AiciError as error:
            self._ended(error)
        except OSError as error:
            self._ended(UnavailableError(f"the model cannot be read: {error}"))

    def _received(self, message: FromHost, body: bytearray) -> None:
        if self._is_closed:
            return
        match message:
            case WireFrame():
                for each in wire.decode_from_engine(body):
                    self._take(each)
            case HasModules(modules):
                self._known_modules = set(modules)
            case EngineSilence(tenths):
                self._silent_s = tenths / 10
            case EngineEnded(failure) | Refused(failure):
                self._ended(failure.error())

    def _take(self, message: wire.FromEngine) -> None:
        if isinstance(message, wire.Ready):
            if not self.ready.done():
                self.ready.set_result(message.info)
        else:
            self.was_useful = self.was_useful or isinstance(message, wire.TokenOut)
            self._client.receive(message)

    def _ended(self, why: AiciError | LinkLostError) -> None:
        """Take note that the engine did not start, has died, or cannot be reached."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self.ready.done():
            self.ready.set_exception(why)
        else:
            self._died(self, why)


def maker(place: EnginePlace, *, token: ClusterToken, store: Store, patience_s: float) -> Any:
    """Return what a Supervisor makes its engines with. The first engine waits for a machine without an end."""
    patience: list[float | None] = [None]

    def make(
        client: EngineClient, *, config: ProcessConfig, died: Callable[[RemoteEngine, AiciError], None]
    ) -> RemoteEngine:
        engine = RemoteEngine(
            client, config=config, died=died, place=place, patience_s=patience[0], token=token, store=store
        )
        patience[0] = patience_s
        return engine

    return make
