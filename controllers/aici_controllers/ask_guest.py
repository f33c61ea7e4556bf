"""Asks a shipped guest a question outside any request: JSON in, JSON out (`aici/tool.hpp` is the other side).

A tool thereby uses the very parser that constrains generation. The guest has an engine for the one call, so that time
ends for it alone, a bounded memory and no import: a question that makes it fail or loop for `TIMEOUT_S` is an
AiciError. It is compiled once, in 30 to 100 ms; a call takes one or two.
"""

import json
import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aici_base.errors import ControllerError
from aici_controllers.catalog import guest_path

if TYPE_CHECKING:
    import wasmtime

TIMEOUT_S: Final = 30.0
_MEMORY_MAX_BYTES: Final = 256 << 20


def ask(guest: str, question: object) -> Any:
    """The guest's answer; a question of bytes is JSON already.

    UnavailableError when the guests are not built; ControllerError when the guest fails.
    """
    import wasmtime

    engine, path = _engine(), guest_path(guest)
    module = wasmtime.Module.deserialize(engine, _compiled(path, path.stat().st_mtime_ns))
    linker = wasmtime.Linker(engine)
    linker.define_unknown_imports_as_traps(module)
    store = wasmtime.Store(engine)
    store.set_epoch_deadline(1)
    store.set_limits(memory_size=_MEMORY_MAX_BYTES)
    exports = linker.instantiate(store, module).exports(store)
    memory, alloc, answer = exports["memory"], exports["aici_tool_alloc"], exports["aici_tool_ask"]
    assert isinstance(memory, wasmtime.Memory)
    assert isinstance(alloc, wasmtime.Func)
    assert isinstance(answer, wasmtime.Func)
    text = question if isinstance(question, bytes) else json.dumps(question, ensure_ascii=False).encode()
    watchdog = threading.Timer(TIMEOUT_S, engine.increment_epoch)
    watchdog.start()
    try:
        address = alloc(store, len(text))
        memory.write(store, text, address)
        at = answer(store, address, len(text))
    except wasmtime.WasmtimeError as error:
        raise ControllerError(f"the guest {guest} failed or took longer than {TIMEOUT_S:.0f} s: {error}") from error
    finally:
        watchdog.cancel()
    length = int.from_bytes(memory.read(store, at, at + 4), "little")
    return json.loads(bytes(memory.read(store, at + 4, at + 4 + length)))


def _engine() -> "wasmtime.Engine":
    import wasmtime

    config = wasmtime.Config()
    config.epoch_interruption = True
    config.cranelift_opt_level = "none"
    return wasmtime.Engine(config)


@lru_cache(maxsize=16)
def _compiled(path: Path, _changed_ns: int) -> bytes:
    """For every engine that `_engine` makes."""
    import wasmtime

    return bytes(wasmtime.Module.from_file(_engine(), str(path)).serialize())
