"""The CPU levels (instruction sets) that the kernels are compiled for, and the features of this CPU."""

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from aici_base.native_library import source_number

SOURCES: Final = Path(__file__).resolve().parent / "src"
LIBRARIES: Final = Path(__file__).resolve().parent / "lib"


@dataclass(frozen=True, slots=True)
class CpuLevel:
    """An instruction set. `cpu`: the name for the compiler. `needs`: the flags in /proc/cpuinfo."""

    name: str
    cpu: str
    needs: frozenset[str]

    @property
    def library(self) -> str:
        return f"aici-native-{self.name}.so"


def _level(name: str, cpu: str, needs: str) -> CpuLevel:
    return CpuLevel(name, cpu, frozenset(needs.split()))


_V3: Final = "avx avx2 bmi1 bmi2 f16c fma abm movbe"
_V4: Final = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
LEVELS: Final[Mapping[str, Sequence[CpuLevel]]] = {
    "x86_64": (
        _level("avx2", "x86_64_v3", _V3),
        _level("avx512", "x86_64_v4", _V4),
        _level("avx512vnni", "x86_64_v4+avx512vnni", f"{_V4} avx512_vnni"),
        _level("avx512bf16", "x86_64_v4+avx512vnni+avx512bf16", f"{_V4} avx512_vnni avx512_bf16"),
    ),
    "aarch64": (
        _level("neon", "generic", "fp asimd"),
        _level("dotprod", "generic+dotprod+fullfp16", "fp asimd asimddp fphp asimdhp"),
    ),
}
"""By architecture; the best level is last."""


def levels() -> Sequence[CpuLevel]:
    """Return the levels of this architecture; empty unless the C library is glibc."""
    return LEVELS.get(platform.machine(), ()) if platform.libc_ver()[0] == "glibc" else ()


@cache
def features() -> frozenset[str]:
    """Return the CPU flags that all cores share."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return frozenset()
    cores = [set(line.split()) for line in re.findall(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)]
    return frozenset(set.intersection(*cores)) if cores else frozenset()


def abi() -> int:
    """Return a hash of the C sources. A library with another number was built from other sources."""
    return source_number(SOURCES)
