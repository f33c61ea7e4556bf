"""Ask a shipped guest a question outside any request: JSON in, JSON out (`aici/tool.hpp` has the guest's side).

So a check uses the same parser as generation. The guest gets a store of its own for every call, with a limit of fuel, a
memory limit and no imports: a question that makes the guest fail raises an AiciError. Fuel counts instructions, so a
question is too costly on every machine or on none. The first question compiles the guest, in 30 to 500 ms, into the
cache folder; a call takes about 1 ms.
"""

import atexit
import hashlib
import json
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aici_base.cache_files import default_cache_dir, mark_used, remove_unused, write_atomically
from aici_base.errors import ControllerError, UnavailableError
from aici_controllers.catalog import guest_path
from aici_controllers.check_cost import CostlyError, Tank, one_tank
from aici_runtime.guests.wasmtime_engine import cache_key
from aici_runtime.process import give_back_memory

if TYPE_CHECKING:
    import wasmtime

_MEMORY_MAX_BYTES: Final = 256 << 20
_KEPT_DAYS: Final = 30
_CONFIG_VERSION: Final = "1"
"""Raise this number whenever `_engine` changes the compiled code."""


def ask(guest: str, question: object) -> Any:
    """Return the guest's answer. A question given as bytes must already be JSON.

    Raise UnavailableError if the guests are not built, CostlyError if the fuel of the check is used up, ControllerError
    if the guest fails.
    """
    with one_tank() as tank:
        return _ask(guest, question, tank)


def _ask(guest: str, question: object, tank: Tank) -> Any:
    import wasmtime

    path = guest_path(guest)
    engine, module = _loaded(path, path.stat().st_mtime_ns)
    linker = wasmtime.Linker(engine)
    linker.define_unknown_imports_as_traps(module)
    store = wasmtime.Store(engine)
    store.set_fuel(tank.fuel)
    store.set_limits(memory_size=_MEMORY_MAX_BYTES)
    exports = linker.instantiate(store, module).exports(store)
    memory, alloc, answer = exports["memory"], exports["aici_tool_alloc"], exports["aici_tool_ask"]
    assert isinstance(memory, wasmtime.Memory)
    assert isinstance(alloc, wasmtime.Func)
    assert isinstance(answer, wasmtime.Func)
    text = question if isinstance(question, bytes) else json.dumps(question, ensure_ascii=False).encode()
    try:
        address = alloc(store, len(text))
        memory.write(store, text, address)
        at = answer(store, address, len(text))
    except wasmtime.Trap as error:
        if error.trap_code == wasmtime.TrapCode.OUT_OF_FUEL:
            raise CostlyError(f"the check was given up after {tank.size:,} instructions") from error
        raise ControllerError(f"the guest {guest} failed: {error}") from error
    except wasmtime.WasmtimeError as error:
        raise ControllerError(f"the guest {guest} failed: {error}") from error
    finally:
        tank.fuel = store.get_fuel()
    length = int.from_bytes(memory.read(store, at, at + 4), "little")
    return json.loads(bytes(memory.read(store, at + 4, at + 4 + length)))


@lru_cache(maxsize=16)
def _loaded(path: Path, _changed_ns: int) -> "tuple[wasmtime.Engine, wasmtime.Module]":
    """Return the guest's module and the engine that owns it. The compiled code is kept in the cache folder."""
    import wasmtime

    engine, wasm = _engine(), path.read_bytes()
    folder = default_cache_dir() / "checks"
    name = f"{path.stem}-{_digest(wasm)}-{cache_key()}-{_CONFIG_VERSION}"
    with suppress(OSError, wasmtime.WasmtimeError):  # the folder or a file cannot be read
        for kept in folder.glob(f"{name}-*.cwasm"):
            # Damaged code would crash this process, or give wrong answers: its digest is in the name.
            if kept.is_file() and kept.stem == f"{name}-{_digest(kept.read_bytes())}":
                mark_used(kept)
                return engine, wasmtime.Module.deserialize_file(engine, str(kept))
    module = wasmtime.Module(engine, wasm)
    code = bytes(module.serialize())
    with suppress(UnavailableError):  # the folder cannot be written
        write_atomically(folder / f"{name}-{_digest(code)}.cwasm", code)
        remove_unused(folder, "*.cwasm", num_days=_KEPT_DAYS)  # of other versions
    give_back_memory()  # the compiler leaves some MB
    return engine, module


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


atexit.register(_loaded.cache_clear)  # while wasmtime's own modules are there, which delete the guests


def _engine() -> "wasmtime.Engine":
    import wasmtime

    config = wasmtime.Config()
    config.consume_fuel = True
    config.cranelift_opt_level = "none"
    return wasmtime.Engine(config)
