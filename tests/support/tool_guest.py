"""Ask a test guest questions in this process, as `aici_controllers.ask_guest` asks the shipped guests."""

import json
from pathlib import Path
from typing import Any

import wasmtime


class ToolGuest:
    """A guest with AICI_EXPOSE_TOOL. Every question gets a fresh instance, because guests give no memory back."""

    def __init__(self, path: Path) -> None:
        config = wasmtime.Config()
        config.consume_fuel = True
        self._engine = wasmtime.Engine(config)
        self._module = wasmtime.Module.from_file(self._engine, str(path))
        self._linker = wasmtime.Linker(self._engine)
        self._linker.define_unknown_imports_as_traps(self._module)
        self.fuel_used = 0

    def ask(self, question: object) -> Any:
        store = wasmtime.Store(self._engine)
        store.set_fuel(1 << 60)
        store.set_limits(memory_size=64 << 20)
        exports = self._linker.instantiate(store, self._module).exports(store)
        memory, alloc, answer = exports["memory"], exports["aici_tool_alloc"], exports["aici_tool_ask"]
        assert isinstance(memory, wasmtime.Memory)
        assert isinstance(alloc, wasmtime.Func)
        assert isinstance(answer, wasmtime.Func)
        text = json.dumps(question).encode()
        address = alloc(store, len(text))
        memory.write(store, text, address)
        at = answer(store, address, len(text))
        self.fuel_used = (1 << 60) - store.get_fuel()
        length = int.from_bytes(memory.read(store, at, at + 4), "little")
        return json.loads(bytes(memory.read(store, at + 4, at + 4 + length)))
