"""The one wasmtime configuration. A compiled module is refused by an engine with another one, so it has a cache key."""

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import wasmtime

_CONFIG_VERSION = "3"
"""Raise it whenever `new_engine`, or `movable.prepare`, changes what code is compiled."""

MAX_STACK_BYTES = 2 << 20
"""As much as wasmtime allows: interpreters in guests recurse for the scripts that they run."""


def new_engine(*, parallel: bool = False) -> "wasmtime.Engine":
    """`parallel` starts a thread pool at the first compilation, which no fork survives: for the compiler alone."""
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
    # Guests are read and written in place, by an address that stays.
    _bindings.wasmtime_config_memory_may_move_set(config.ptr(), False)
    return wasmtime.Engine(config)


def cache_key() -> str:
    """What a compiled module depends on besides its source: wasmtime, our configuration, and this processor."""
    flags = next((line for line in _cpu_info() if line.startswith(("flags", "Features"))), "")
    processor = hashlib.sha256(f"{platform.machine()} {flags}".encode()).hexdigest()[:8]
    return f"wasmtime{version('wasmtime')}-{_CONFIG_VERSION}-{processor}"


def _cpu_info() -> list[str]:
    return Path("/proc/cpuinfo").read_text().splitlines()
