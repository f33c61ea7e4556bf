"""Check the imports and exports of a module against the guest ABI in `aici_runtime.abi`.

A module speaks guest ABI v2 if the module exports neither `aici_pre_process` nor `aici_post_process`, else v1.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from aici_runtime import abi
from aici_runtime.guests import wasi

if TYPE_CHECKING:
    import wasmtime

_LETTERS: Final = {"i32": "i", "i64": "I"}
_MEMORY_MAX_PAGES: Final = 1024
"""In pages of 64 KiB: the default of `--wasm-max-memory`."""
_OFFERED: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "env": abi.IMPORTS_V2 | abi.IMPORTS_V1,
    wasi.MODULE: wasi.SIGNATURES,
}


def check_abi(wasm: bytes) -> list[str]:
    """Return why the module is not a controller, one reason per line; an empty list for a controller. Compiles the
    module."""
    import wasmtime

    from aici_runtime.guests.wasmtime_engine import new_engine, refusal

    try:
        module = wasmtime.Module(new_engine(), wasm)
    except wasmtime.WasmtimeError as error:
        return [f"not a WebAssembly module that aici can run: {refusal(wasm, error)}"]
    return [*check_module(module), *_memory_size(module)]


def check_module(module: "wasmtime.Module") -> list[str]:
    """Return the same reasons for a compiled module, without the memory limit: the runtime enforces its own limit
    later."""
    return [*_imports(module), *_exports(module)]


def _imports(module: "wasmtime.Module") -> Iterator[str]:
    for entry in module.imports:
        name = f"{entry.module}.{entry.name}"
        offered = _OFFERED.get(entry.module, {})
        wanted = offered.get(entry.name or "")
        if wanted is None:
            near = difflib.get_close_matches(name, [f"{m}.{n}" for m, names in _OFFERED.items() for n in names], n=1)
            yield f"imports {name}, which the runtime does not offer" + (f" (did you mean {near[0]}?)" if near else "")
        elif (found := _signature(entry.type)) not in (wanted, abi.IMPORTS_V2.get(entry.name or "")):
            yield f"imports {name} as {_show(found)}; the runtime offers {_show(wanted)}"


def _exports(module: "wasmtime.Module") -> Iterator[str]:
    import wasmtime

    exports = {entry.name: entry.type for entry in module.exports}
    memory = exports.get("memory")
    if memory is None:
        yield "does not export its memory (as `memory`)"
    elif not isinstance(memory, wasmtime.MemoryType):
        yield "exports `memory`, but not as a memory"
    is_later = not {"aici_pre_process", "aici_post_process"} & set(exports)
    required = abi.EXPORTS_V2 if is_later else abi.EXPORTS_V1
    for name, wanted in {**required, **abi.OPTIONAL_EXPORTS}.items():
        if name not in exports:
            if name in required:
                near = difflib.get_close_matches(name, [other for other in exports if other not in abi.EXPORTS_V1], n=1)
                yield f"does not export {name}" + (f" (but exports {near[0]})" if near else "")
        elif (found := _signature(exports[name])) != wanted:
            yield f"exports {name} as {_show(found)}; it must be {_show(wanted)}"


def _memory_size(module: "wasmtime.Module") -> Iterator[str]:
    import wasmtime

    for entry in module.exports:
        if isinstance(entry.type, wasmtime.MemoryType) and entry.type.limits.min > _MEMORY_MAX_PAGES:
            yield f"starts with {entry.type.limits.min} pages of memory; the limit is {_MEMORY_MAX_PAGES} (64 MiB)"


def _signature(kind: object) -> tuple[str, str] | None:
    """Return parameters and results as letters of `abi.IMPORTS_V1`; None if `kind` is not a function."""
    import wasmtime

    if not isinstance(kind, wasmtime.FuncType):
        return None
    params, results = (
        "".join(_LETTERS.get(str(value), "?") for value in values) for values in (kind.params, kind.results)
    )
    return params, results


def _show(signature: tuple[str, str] | None) -> str:
    if signature is None:
        return "no function"
    names = {"i": "i32", "I": "i64", "?": "another type"}
    params, results = (", ".join(names[letter] for letter in letters) for letters in signature)
    return f"({params}) -> ({results})"
