"""Bounds on what is compiled, checked before compiling: a small module can cost a compiler minutes and gigabytes.

The bounds are far above what the guests that ship have (`python -m tests.runtime.modules.compile_cost` prints both). A
module within the bounds may still cost too much: the limits of the compiler process (`compiler_process.py`) end it.
"""

from typing import Final

from aici_base.errors import UsageError
from aici_runtime.modules import wasm_sections as sections
from aici_runtime.modules.code_walk import walk
from aici_runtime.modules.wasm_sections import Sections

_MOST_ENTRIES: Final = {
    sections.TYPE: ("types", 10_000),
    sections.IMPORT: ("imports", 1_000),
    sections.FUNCTION: ("functions", 50_000),
    sections.TABLE: ("tables", 2),
    sections.TAG: ("tags", 1_000),
    sections.GLOBAL: ("globals", 100_000),
    sections.EXPORT: ("exports", 100_000),
    sections.ELEMENT: ("element segments", 100_000),
    sections.DATA: ("data segments", 100_000),
}
MAX_TYPE_VALUES: Final = 100_000
MAX_LOCALS: Final = 5_000_000
MAX_BODY_BYTES: Final = 512 << 10
MAX_BLOCKS: Final = 5_000
MAX_LOOPS: Final = 1_000
MAX_BLOCK_VALUES: Final = 5_000
MAX_INDIRECT_CALLS: Final = 10_000
_HINT: Final = "make the module smaller, or split what is too large"


def check_sections(wasm: bytes) -> Sections:
    """Raise UsageError if a section is broken, or has more than a bound allows. The module need not be valid."""
    found = Sections(wasm)
    for kind, count in found.counts().items():
        if kind in _MOST_ENTRIES:
            what, most = _MOST_ENTRIES[kind]
            _check(count, most, what)
    _check(sum(found.function_types()), MAX_TYPE_VALUES, "parameters and results of types")
    num_locals = 0
    for number, body in enumerate(found.function_bodies()):
        _check(body.size, MAX_BODY_BYTES, "bytes", f"function {number}")
        num_locals += body.num_locals
    _check(num_locals, MAX_LOCALS, "locals")
    return found


def check_functions(found: Sections) -> None:
    """Raise UsageError if a function has more blocks or calls than a bound allows. The module must be valid."""
    type_sizes = list(found.function_types())
    for number, body in enumerate(found.function_bodies()):
        shape = walk(found.wasm, body.code_start, body.end, type_sizes)
        where = f"function {number}"
        _check(shape.num_blocks, MAX_BLOCKS, "blocks", where)
        _check(shape.num_loops, MAX_LOOPS, "loops", where)
        _check(shape.num_block_values, MAX_BLOCK_VALUES, "parameters and results of blocks", where)
        _check(shape.num_indirect_calls, MAX_INDIRECT_CALLS, "calls through a table", where)


def _check(count: int, most: int, what: str, where: str = "the module") -> None:
    if count > most:
        of_module = " of the module" if where != "the module" else ""
        raise UsageError(f"{where}{of_module} has {count} {what}: at most {most} are compiled", hint=_HINT)
