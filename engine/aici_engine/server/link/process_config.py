"""The settings of an engine process: one JSON argument."""

import msgspec

from aici_engine.config import EngineConfig
from aici_engine.server.config import LogFormat


class ProcessConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`requests`, `events`: addresses of sockets that the parent has bound. `modules`: paths of .wasm files to compile
    before the first request. `heartbeat`: the descriptor of the memory for the engine's heartbeat. `cpus`: the only
    processors of the process and its children; without any, all."""

    requests: str
    events: str
    parent_pid: int
    heartbeat: int
    engine: EngineConfig
    max_forks: int
    cpus: tuple[int, ...] = ()
    modules: tuple[str, ...] = ()
    log_level: str = "WARNING"
    log_format: LogFormat = "text"
