"""The single wasmtime configuration. An engine refuses a module compiled under another configuration, hence
`cache_key`."""

import hashlib
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import wasmtime

_CONFIG_VERSION = "5"
"""Raise this number whenever `new_engine` or `movable.prepare` changes the compiled code, or the format of snapshots
changes."""

MAX_STACK_BYTES = 2 << 20
"""The maximum of wasmtime: interpreters in guests recurse on behalf of their scripts."""


OFF: Final[Mapping[str, str]] = {
    "threads": "threads",
    "tail_call": "tail calls",
    "memory64": "memory64",
    "multi_memory": "multiple memories",
    "relaxed_simd": "relaxed SIMD",
    "wide_arithmetic": "wide arithmetic",
    "custom_page_sizes": "custom page sizes",
    "stack_switching": "stack switching",
    "gc": "garbage collection",
    "function_references": "typed function references",
    "branch_hinting": "branch hinting",
    "compact_imports": "compact imports",
    "component_model": "component model",
}
"""wasmtime's setting → name of each proposal that is off. Guests need none of them: less of wasmtime is open to attack.

Exceptions stay on, because MicroPython's guest raises errors with them; so do reference types, which exceptions need.
"""


def new_engine() -> "wasmtime.Engine":
    """Return a new engine. The engine compiles in one thread."""
    import wasmtime
    from wasmtime import _bindings

    config = wasmtime.Config()
    config.epoch_interruption = True
    config.parallel_compilation = False
    config.max_wasm_stack = MAX_STACK_BYTES
    config.shared_memory = False
    _switch_off(config, OFF)
    # The runtime reads and writes guest memory in place, so its address must not change.
    _bindings.wasmtime_config_memory_may_move_set(config.ptr(), False)
    return wasmtime.Engine(config)


def refusal(wasm: bytes, error: "wasmtime.WasmtimeError") -> str:
    """Return why `new_engine` refuses a module with `error`. If only proposals are missing, the text names them."""
    missing = _needed(wasm)
    if not missing:
        return str(error)
    are = "proposals, which are" if len(missing) > 1 else "a proposal, which is"
    return f"the module uses {' and '.join(missing)}: {are} switched off here"


def _needed(wasm: bytes) -> list[str]:
    """Return the names of the proposals in `OFF` without which the module is not valid; none if it never is."""
    if not _is_valid(wasm, off=()):
        return []
    return [name for proposal, name in OFF.items() if not _is_valid(wasm, off=(proposal,))]


def _is_valid(wasm: bytes, *, off: Iterable[str]) -> bool:
    import wasmtime
    from wasmtime import _bindings

    config = wasmtime.Config()
    for proposal in OFF:
        getattr(_bindings, f"wasmtime_config_wasm_{proposal}_set")(config.ptr(), True)
    _switch_off(config, off)
    try:
        wasmtime.Module.validate(wasmtime.Engine(config), wasm)
    except wasmtime.WasmtimeError:
        return False
    return True


def _switch_off(config: "wasmtime.Config", proposals: Iterable[str]) -> None:
    from wasmtime import _bindings

    for proposal in proposals:
        getattr(_bindings, f"wasmtime_config_wasm_{proposal}_set")(config.ptr(), False)


def cache_key() -> str:
    """Return everything besides the source that a compiled module depends on: wasmtime, our configuration, the
    processor."""
    flags = next((line for line in _cpu_info() if line.startswith(("flags", "Features"))), "")
    processor = hashlib.sha256(f"{platform.machine()} {flags}".encode()).hexdigest()[:8]
    return f"wasmtime{version('wasmtime')}-{_CONFIG_VERSION}-{processor}"


def _cpu_info() -> list[str]:
    return Path("/proc/cpuinfo").read_text().splitlines()
