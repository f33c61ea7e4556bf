"""The engine of a replica on another machine: a Supervisor, and a place that the engine gives back at the end."""

from typing import Self

from aici_engine.server.link.supervisor import Supervisor
from aici_engine.server.remote.places import EnginePlace


class PlacedEngine:
    """Implements `ReplicaEngine`. An async context manager; entering waits until the engine is ready."""

    def __init__(self, supervisor: Supervisor, place: EnginePlace) -> None:
        self._supervisor = supervisor
        self._place = place
        self.failed = supervisor.failed

    @property
    def node(self) -> str:
        """The name of the machine, empty while there is none."""
        return self._place.node

    async def __aenter__(self) -> Self:
        try:
            await self._supervisor.__aenter__()
        except BaseException:
            self._place.release()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._supervisor.__aexit__()
        self._place.release()
