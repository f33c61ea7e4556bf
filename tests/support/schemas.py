"""Ask the guest `json_schema` through its tool exports, many times on one compiled module."""

import json
from collections.abc import Sequence
from typing import Any

import wasmtime

from aici_controllers.schema_check import SchemaOptions, SchemaReport, parse_report, schema_argument, with_texts
from tests.support.fake_host import GuestModule


def ask_schema(module: GuestModule, schema: object, texts: Sequence[str] = (), **options: Any) -> SchemaReport:
    """Return the answer of `check_schema` from a fresh instance of `module`. `options` are those of SchemaOptions."""
    linker = wasmtime.Linker(module.engine)
    linker.define_unknown_imports_as_traps(module.module)
    store = wasmtime.Store(module.engine)
    store.set_epoch_deadline(1)
    store.set_limits(memory_size=64 << 20)
    exports = linker.instantiate(store, module.module).exports(store)
    memory, alloc, answer = exports["memory"], exports["aici_tool_alloc"], exports["aici_tool_ask"]
    assert isinstance(memory, wasmtime.Memory)
    assert isinstance(alloc, wasmtime.Func)
    assert isinstance(answer, wasmtime.Func)
    question = with_texts(schema_argument(schema, SchemaOptions(**options)), texts)
    address = alloc(store, len(question))
    memory.write(store, question, address)
    at = answer(store, address, len(question))
    length = int.from_bytes(memory.read(store, at, at + 4), "little")
    return parse_report(json.loads(bytes(memory.read(store, at + 4, at + 4 + length))))
