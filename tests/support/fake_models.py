"""Several models in one server, each over an engine that plays the scripts of a test."""

import asyncio
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field

from aici_base.errors import AiciError
from aici_engine.server.config import ModelLoading
from aici_engine.server.link.client import EngineClient
from aici_engine.server.link.model_client import Engines, ModelClient
from aici_engine.server.service.admission import Admission
from aici_engine.server.service.models import Models
from aici_engine.server.service.served_model import ServedModel
from aici_engine.server.service.service import Service
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over


@dataclass
class FakeEngines:
    """The engine processes of a model. `gate`: the model is up only when the gate is open. `fails`: the next starts
    raise these errors. `planned_bytes`: of memory, as the files tell. `num_running`: processes that were started and
    not ended."""

    engine: FakeEngine = field(default_factory=FakeEngine)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    fails: list[AiciError] = field(default_factory=list)
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    planned_bytes: int = 0
    num_starts: int = 0
    num_running: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def client(self) -> EngineClient:
        return self.engine.client

    @client.setter
    def client(self, _: EngineClient) -> None:
        raise AttributeError

    async def __aenter__(self) -> "FakeEngines":
        self.num_starts += 1
        await self.gate.wait()
        if self.fails:
            raise self.fails.pop(0)
        self.num_running += 1
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.num_running -= 1


def fake_models(
    engines: Mapping[str, Engines],
    *,
    aliases: Mapping[str, str] | None = None,
    capacity: int = 8,
    loading: ModelLoading | None = None,
) -> Models:
    """Return models that are not loaded. `aliases`: alias → name."""
    base = service_over(FakeEngine())
    first = Admission(capacity)
    served: list[ServedModel] = []
    for name, each in engines.items():
        admission = first.beside(capacity) if served else first

        def service(client: ModelClient, name: str = name, admission: Admission = admission) -> Service:
            own = copy(base)
            own.client, own.name, own.admission = client, name, admission
            return own

        def start(each: Engines = each) -> Engines:
            return each

        own = [alias for alias, of in (aliases or {}).items() if of == name]
        served.append(
            ServedModel(
                name,
                model_dir=base.model_dir / name,
                admission=admission,
                engines=start,
                service=service,
                aliases=own,
                is_kept=False,
                planned_bytes=each.planned_bytes if isinstance(each, FakeEngines) else 0,
            )
        )
    return Models(
        served,
        limits=base.limits,
        metrics=base.metrics,
        store=base.store,
        constraints=base.constraints,
        loading=loading,
    )
