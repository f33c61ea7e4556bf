"""The messages between a server and the host of an engine on another machine.

    server -> host    StartEngine first; then WireFrame + bytes, ModuleBytes + bytes, StopEngine
    host -> server    HasModules, WireFrame + bytes, EngineSilence, EngineEnded

The bytes of a WireFrame are a frame of `link.wire`. The connection begins with a Hello in both directions, as the
connections of stages do (`aici_engine.cluster.link`). The first WireFrame of the host holds Ready.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from aici_base.errors import AiciError
from aici_engine.cluster import frames
from aici_engine.cluster.frames import Buffer, Count, Digest, Failure, FrameError, Refused
from aici_engine.config import EngineConfig

MAX_BODY_BYTES: Final = 256 << 20
"""Of a frame: the largest controller, or the scores of the longest prompt."""
ModuleId: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]

_SENT: Final = (
    "dtype",
    "kv_cache_dtype",
    "page_size",
    "num_pages",
    "max_num_seqs",
    "max_batch_tokens",
    "prefill_slowdown",
    "max_context",
    "memory_fraction",
    "prefix_cache",
    "calm_rounds",
    "speculate",
)
"""The settings of an engine that a server decides. A host decides the rest, above all every path."""


class StartEngine(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="start"):
    """Answered by Ready, or by EngineEnded with the reason. An engine that runs with the same order goes on.

    `model`: see `model_in_folder.digest_of`. `settings`: JSON of the settings that a server decides.
    """

    model: Digest
    settings: Annotated[bytes, Meta(max_length=1 << 16)]
    max_forks: Annotated[int, Meta(ge=1, le=256)]


class ModuleBytes(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="module"):
    """The body is a controller. Later requests may name the controller by its id."""

    module_id: ModuleId


class WireFrame(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="wire"):
    """The body is a frame of `link.wire`."""


class StopEngine(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="stop"):
    """End the engine: the server does not need the replica any more."""


class HasModules(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="has"):
    """The ids of the host's controllers. The server sends other controllers before the first request that names them.
    Precedes Ready."""

    modules: Annotated[list[ModuleId], Meta(max_length=1 << 12)]


class EngineSilence(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="silence"):
    """The engine has work, and has made no progress for so long."""

    tenths: Count


class EngineEnded(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="ended"):
    """The engine did not start, or has died."""

    failure: Failure


ToHost: TypeAlias = StartEngine | ModuleBytes | WireFrame | StopEngine
FromHost: TypeAlias = HasModules | WireFrame | EngineSilence | EngineEnded | Refused

decode_to_host: Final[Callable[[Buffer], ToHost]] = frames.decoder(ToHost)
decode_from_host: Final[Callable[[Buffer], FromHost]] = frames.decoder(FromHost)


def settings_of(engine: EngineConfig) -> bytes:
    """Return the settings that a server decides, as JSON."""
    return msgspec.json.encode({name: getattr(engine, name) for name in _SENT})


def engine_of(settings: bytes, model_dir: Path) -> EngineConfig:
    """Return the configuration of an engine on the processors. Raises FrameError for settings that are none."""
    try:
        given = msgspec.json.decode(settings, type=dict[str, bool | int | float | str | None])
        if unknown := given.keys() - set(_SENT):
            raise FrameError(f"the server decides the setting {min(unknown)!r:.80}, which is the host's own")
        sent = msgspec.convert(given | {"model_dir": ""}, EngineConfig, dec_hook=lambda kind, value: kind(value))
        return replace(sent, model_dir=model_dir, device="cpu")
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise FrameError(f"the settings of an engine cannot be read: {error}") from error
    except AiciError as error:
        raise error.with_message(f"the settings of the engine: {error.message}") from error
