"""The API's client and the engine's server face to face in one process, every message encoded and decoded."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aici_engine.config import EngineConfig
from aici_engine.control.runtime import ControllerRuntime
from aici_engine.engine import Engine
from aici_engine.server.engine_process.engine_server import EngineServer
from aici_engine.server.link import wire
from aici_engine.server.link.client import EngineClient


class Joined:
    def __init__(self, server: EngineServer) -> None:
        self._server = server

    def send(self, message: wire.ToEngine) -> None:
        for again in wire.decode_to_engine(wire.encode([message])):
            self._server.handle(again)


@asynccontextmanager
async def joined(config: EngineConfig, *, runtime: ControllerRuntime | None = None) -> AsyncIterator[EngineClient]:
    loop = asyncio.get_running_loop()
    client = EngineClient()
    waiting: list[wire.FromEngine] = []

    def flush() -> None:
        messages = list(waiting)
        waiting.clear()
        for again in wire.decode_from_engine(wire.encode(messages)):
            loop.call_soon_threadsafe(client.receive, again)

    with Engine(config, runtime=runtime, on_step=flush) as engine:
        server = EngineServer(engine, send=waiting.append, flush=flush)
        info = wire.EngineInfo(engine.vocab_size, engine.max_len, config.max_num_seqs, states_size=engine.states_size)
        client.connected(Joined(server), info)
        yield client
        assert client.num_streams == 0
        assert engine.get_stats()["cache_usage"] == 0.0
        server.close()
