"""What serves now: the models, their engine processes and the stages of a pipeline, as JSON values."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from aici_base.errors import AiciError
from aici_engine.cluster.headers import ModelSizes
from aici_engine.server.api.engine_figures import EngineFigures, EngineState
from aici_engine.server.fleet.replica import Replica
from aici_engine.server.service.models import Models
from aici_engine.server.service.served_model import ServedModel

_ANSWER_S: Final = 0.3
"""The time for the answers of all engines. An engine that is later is shown with its figures of before."""


class _Engine(NamedTuple):
    """`client`: None while no engine is up. `more`: what only some engines have."""

    replica: int
    state: str
    restarts: int
    num_open: int
    client: EngineState | None
    more: Mapping[str, Any]


class ServerState:
    """Looks at the models of a server. `look` is called by one task at a time; `close` ends open questions."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._figures: dict[tuple[str, int], EngineFigures] = {}
        self._num_layers: dict[str, int | None] = {}

    async def look(self) -> dict[str, Any]:
        """Return the state of now. Takes `_ANSWER_S` at most, whatever the engines do."""
        engines = {model.name: _engines_of(model) for model in self._models.all}
        found = [self._of(name, each) for name, of_model in engines.items() for each in of_model]
        if asked := [figures.ask() for figures in found if figures is not None]:
            await asyncio.wait(asked, timeout=_ANSWER_S)
        for model in self._models.all:
            if model.name not in self._num_layers:
                self._num_layers[model.name] = await asyncio.to_thread(_num_layers, model)
        return {
            "draining": self._models.admission.draining,
            "models": [self._described(model, engines[model.name]) for model in self._models.all],
        }

    async def close(self) -> None:
        for figures in self._figures.values():
            await figures.close()

    def _of(self, model: str, engine: _Engine) -> EngineFigures | None:
        """Return the figures of an engine that is up: new figures if the client is new."""
        if engine.client is None:
            return None
        key = model, engine.replica
        if (known := self._figures.get(key)) is None or known.engine is not engine.client:
            known = self._figures[key] = EngineFigures(engine.client)
        return known

    def _described(self, model: ServedModel, engines: list[_Engine]) -> dict[str, Any]:
        figures = [self._of(model.name, each) for each in engines]
        return {
            "model": model.name,
            "state": str(model.state),
            "max_len": model.max_len,
            "num_layers": self._num_layers[model.name],
            "admitted": model.admission.num_admitted,
            "queue_capacity": model.admission.capacity,
            "loads": model.num_loads,
            "engines": [_described(engine, of_engine) for engine, of_engine in zip(engines, figures, strict=True)],
            "pipeline": None if figures[0] is None else figures[0].pipeline,
        }


def _engines_of(model: ServedModel) -> list[_Engine]:
    if (fleet := model.fleet) is not None:
        return [_of_replica(each) for each in fleet.replicas]
    service = model.service
    return [
        _Engine(
            replica=1,
            state=model.engine_state,
            restarts=model.num_restarts,
            num_open=model.num_streams,
            client=None if service is None or not service.client.is_ready else service.client,
            more={},
        )
    ]


def _of_replica(replica: Replica) -> _Engine:
    return _Engine(
        replica=replica.number,
        state=str(replica.state),
        restarts=replica.num_restarts,
        num_open=replica.client.num_streams,
        client=replica.client if replica.client.is_ready else None,
        more={"node": replica.status().node, "cpus": replica.share.cpus, "threads": replica.share.num_threads},
    )


def _described(engine: _Engine, figures: EngineFigures | None) -> dict[str, Any]:
    info = None if engine.client is None else engine.client.info
    return {
        "replica": engine.replica,
        "state": engine.state,
        "restarts": engine.restarts,
        "open": engine.num_open,
        "memory_bytes": 0 if info is None else info.memory_bytes,
        "max_num_seqs": None if info is None else info.max_num_seqs,
        **engine.more,
        "figures": None if figures is None else figures.fields(),
    }


def _num_layers(model: ServedModel) -> int | None:
    """Return the number of layers, from the headers of the model's files; None if the files do not say."""
    try:
        return ModelSizes.of(model.service.model_dir if model.service else model.model_dir).whole.num_layers
    except (AiciError, OSError):
        return None
