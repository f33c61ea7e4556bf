"""What `aici serve` is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aici_engine.config import EngineConfig
from aici_runtime.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """`port` 0 takes a free one. `max_queue`: sequences that may wait beyond those that run. `modules`: tag → file.

    `api_key_file` None lets everybody in, who can reach `host`. `request_timeout_s` bounds one request, its time in the
    queue included. `cors_origins` empty: no other page's script may read an answer.
    """

    engine: EngineConfig
    name: str
    aliases: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 4242
    api_key_file: Path | None = None
    max_queue: int = 256
    max_body_bytes: int = 32 << 20
    request_timeout_s: float = 600.0
    drain_timeout_s: float = 30.0
    cors_origins: tuple[str, ...] = ()
    modules: Mapping[str, Path] = field(default_factory=dict)
    log_level: str = "INFO"

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise UsageError(f"port {self.port} is not one", hint="0 to 65535; 0 takes a free one")
        if self.max_queue < 0:
            raise UsageError(f"max_queue must be 0 or more, not {self.max_queue}")
        for name in ("max_body_bytes", "request_timeout_s", "drain_timeout_s"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be above 0, not {getattr(self, name)}")
