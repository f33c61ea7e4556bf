"""What the API process uses of a model's engines: one `EngineClient`, or the replicas of a fleet behind one client."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from aici_base.errors import AiciError
from aici_engine.server.link import wire
from aici_engine.server.link.stream import EngineStream, Watch, unwatched


class ModelClient(Protocol):
    """Opens streams and calls the engines. The members mean the same as in `EngineClient`."""

    on_guest_time: Callable[[dict[str, float]], None]
    up: asyncio.Event
    down: asyncio.Event

    @property
    def info(self) -> wire.EngineInfo | None: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_hanging(self) -> bool: ...

    @property
    def num_streams(self) -> int: ...

    @property
    def num_restarts(self) -> int: ...

    def open(self, submit: wire.Submit, *, is_whole: bool = False, watch: Watch = unwatched) -> EngineStream: ...

    def check_up(self) -> None: ...

    async def call(self, method: str) -> Any: ...

    async def ping(self, limit_s: float) -> None: ...

    def lost(self, why: AiciError) -> None: ...


class Engines(Protocol):
    """The engine processes of one model, behind one client. Entering waits until the model can answer.

    `failed` is set if the processes keep dying.
    """

    failed: asyncio.Event

    @property
    def client(self) -> ModelClient: ...

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *exc: object) -> None: ...
