"""Compile one controller: `python -m aici_runtime.modules.compiler_process IN OUT PROCESSOR_SECONDS MEMORY_BYTES`.

The process has one thread that computes, and limits on its processor time and memory, which end it. The process also
ends when its standard input closes: the child never outlives the parent.
"""

import os
import resource
import sys
from pathlib import Path

import wasmtime

from aici_base.cache_files import write_atomically
from aici_base.errors import UnavailableError, UsageError
from aici_runtime import process
from aici_runtime.guests import movable, wasmtime_engine
from aici_runtime.guests.abi_check import check_module
from aici_runtime.modules import compile_bounds
from aici_runtime.modules.compiler import NO_CONTROLLER
from aici_runtime.modules.wasm_bytes import check_wasm

_MAX_REASON_CHARS = 10_000
"""Limit of the message: names in a module can be longer than a pipe, and the parent reads only after the end."""


def main(source: Path, target: Path) -> int:
    process.set_name("aicirt-compile")
    process.start_thread(_end_with_stdin)
    try:
        engine, binary = wasmtime_engine.new_engine(), source.read_bytes()
        check_wasm(binary, "cannot compile the module: the file")  # wasmtime itself would accept the text format
        sections = compile_bounds.check_sections(binary)
        try:
            wasmtime.Module.validate(engine, binary)
        except wasmtime.WasmtimeError as error:
            return _refuse(f"cannot compile the module: {wasmtime_engine.refusal(binary, error)}")
        compile_bounds.check_functions(sections)
        module = wasmtime.Module(engine, movable.prepare(binary))
        if problems := check_module(module):
            return _refuse("; ".join(["the module is not a controller", *problems]))
        write_atomically(target, bytes(module.serialize()))
    except wasmtime.WasmtimeError as error:
        return _refuse(f"cannot compile the module: {error}")
    except UsageError as error:
        return _refuse(error.message)
    except UnavailableError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _refuse(why: str) -> int:
    sys.stderr.write(f"{why[:_MAX_REASON_CHARS]}\n")
    return NO_CONTROLLER


def _end_with_stdin() -> None:
    os.read(0, 1)
    os._exit(1)


def _limit(processor_s: int, memory_bytes: int) -> None:
    for kind, most in (
        (resource.RLIMIT_CPU, processor_s),
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        # The hard limit stays. At the soft limit of processor time, SIGXCPU tells the parent why the process ended.
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    _limit(int(sys.argv[3]), int(sys.argv[4]))
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
