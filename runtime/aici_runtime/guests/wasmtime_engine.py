"""The single wasmtime configuration. An engine refuses a module compiled under another configuration, hence
`cache_key`."""

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import wasmtime

_CONFIG_VERSION = "4"
"""Raise this number whenever `new_engine` or `movable.prepare` changes the compiled code, or the format of snapshots
changes."""

MAX_STACK_BYTES = 2 << 20
"""The maximum of wasmtime: interpreters in guests recurse on behalf of their scripts."""


def new_engine(*, parallel: bool = False) -> "wasmtime.Engine":
    """Return a new engine. `parallel` starts a thread pool at the first compilation; a thread pool does not survive a
    fork, so only the compiler process may use the option."""
    import wasmtime
    from wasmtime import _bindings

    config = wasmtime.Config()
    config.epoch_interruption = True
    config.parallel_compilation = parallel
    config.max_wasm_stack = MAX_STACK_BYTES
    config.wasm_threads = False
    config.shared_memory = False
    config.wasm_tail_call = False
    config.wasm_memory64 = False
    config.wasm_multi_memory = False
    config.wasm_relaxed_simd = False
    # The runtime reads and writes guest memory in place, so its address must not change.
    _bindings.wasmtime_config_memory_may_move_set(config.ptr(), False)
    return wasmtime.Engine(config)


def cache_key() -> str:
    """Return everything besides the source that a compiled module depends on: wasmtime, our configuration, the
    processor."""
    flags = next((line for line in _cpu_info() if line.startswith(("flags", "Features"))), "")
    processor = hashlib.sha256(f"{platform.machine()} {flags}".encode()).hexdigest()[:8]
    return f"wasmtime{version('wasmtime')}-{_CONFIG_VERSION}-{processor}"


def _cpu_info() -> list[str]:
    return Path("/proc/cpuinfo").read_text().splitlines()
