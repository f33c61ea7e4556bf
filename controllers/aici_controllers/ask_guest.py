"""Ask a shipped guest a question outside any request: JSON in, JSON out (`aici/tool.hpp` has the guest's side).

So a check uses the same parser as generation. The guest gets a store of its own for every call, with a limit of fuel, a
memory limit and no imports: a question that makes the guest fail raises an AiciError. Fuel counts instructions, so a
question is too costly on every machine or on none. The guest is compiled once per process, in 30 to 500 ms; a call
takes 1 to 2 ms.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aici_base.errors import ControllerError
from aici_controllers.catalog import guest_path
from aici_controllers.check_cost import CostlyError, Tank, one_tank
from aici_runtime.process import give_back_memory

if TYPE_CHECKING:
    import wasmtime

_MEMORY_MAX_BYTES: Final = 256 << 20


def ask(guest: str, question: object) -> Any:
    """Return the guest's answer. A question given as bytes must already be JSON.

    Raise UnavailableError if the guests are not built, CostlyError if the fuel of the check is used up, ControllerError
    if the guest fails.
    """
    with one_tank() as tank:
        return _ask(guest, question, tank)


def _ask(guest: str, question: object, tank: Tank) -> Any:
    import wasmtime

    engine, path = _engine(), guest_path(guest)
    module = wasmtime.Module.deserialize(engine, _compiled(path, path.stat().st_mtime_ns))
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


def _engine() -> "wasmtime.Engine":
    import wasmtime

    config = wasmtime.Config()
    config.consume_fuel = True
    config.cranelift_opt_level = "none"
    return wasmtime.Engine(config)


@lru_cache(maxsize=16)
def _compiled(path: Path, _changed_ns: int) -> bytes:
    """Return the compiled module, valid for every engine made by `_engine`."""
    import wasmtime

    compiled = bytes(wasmtime.Module.from_file(_engine(), str(path)).serialize())
    give_back_memory()  # the compiler leaves some MB
    return compiled
