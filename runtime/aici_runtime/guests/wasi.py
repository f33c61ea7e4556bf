"""The part of WASI preview 1 that guests import: output goes to the log, everything else is refused.

A guest has no files and no arguments. The clock stands still unless a flag lets the clock run, and random bytes come
from the seed of the request: the behaviour of a guest is a function of its tokens and the seed.
"""

from collections.abc import Callable
from typing import Protocol

from aici_runtime.guests.linker import HostFunction, Linker

MODULE = "wasi_snapshot_preview1"
_BADF, _PERM = 8, 63
_MONOTONIC = 1
_MAX_IOVECS = 1024
_CHARACTER_DEVICE = bytes([2]) + bytes(23)

_REFUSED = {
    "environ_get": "ii",
    "path_create_directory": "iii",
    "path_filestat_get": "iiiii",
    "path_filestat_set_times": "iiiiIIi",
    "path_link": "iiiiiii",
    "path_open": "iiiiiIIii",
    "path_readlink": "iiiiii",
    "path_remove_directory": "iii",
    "path_rename": "iiiiii",
    "path_unlink_file": "iii",
    "poll_oneoff": "iiii",
    "fd_filestat_set_size": "iI",
    "fd_read": "iiii",
    "fd_readdir": "iiiIi",
    "fd_close": "i",
    "fd_filestat_get": "ii",
    "fd_prestat_get": "ii",
    "fd_prestat_dir_name": "iii",
    "fd_seek": "iIii",
}
_ACCEPTED = {
    "sched_yield": "",
    "fd_sync": "i",
    "args_get": "ii",
}

_DEFINED = {
    "fd_write": ("iiii", "i"),
    "fd_fdstat_get": ("ii", "i"),
    "args_sizes_get": ("ii", "i"),
    "environ_sizes_get": ("ii", "i"),
    "clock_time_get": ("iIi", "i"),
    "random_get": ("ii", "i"),
    "proc_exit": ("i", ""),
}
SIGNATURES = {name: (params, "i") for name, params in (_REFUSED | _ACCEPTED).items()} | _DEFINED
"""All imports of WASI available to guests: parameters and result, as in `abi.IMPORTS_V1`."""


class ExitError(Exception):
    """The guest called `proc_exit`."""


class WasiHost(Protocol):
    def read(self, pointer: int, length: int) -> bytes: ...
    def write(self, pointer: int, content: bytes) -> None: ...
    def log(self, text: bytes) -> None: ...

    def random(self, length: int) -> bytes: ...

    def clock_ns(self) -> int:
        """Return the time since the instance was created, rounded down to the clock's resolution; 0 without a
        resolution."""


def define(linker: Linker, host: WasiHost) -> None:
    functions: dict[str, HostFunction] = {
        **dict.fromkeys(_REFUSED, _constant(_BADF)),
        **dict.fromkeys(_ACCEPTED, _constant(0)),
        "fd_write": _fd_write(host),
        "fd_fdstat_get": _fd_fdstat_get(host),
        "args_sizes_get": _no_strings(host),
        "environ_sizes_get": _no_strings(host),
        "clock_time_get": _clock_time_get(host),
        "random_get": _random_get(host),
        "proc_exit": _proc_exit,
    }
    for name, signature in SIGNATURES.items():
        linker.define(MODULE, name, signature, functions[name])


def _constant(value: int) -> HostFunction:
    return lambda *_: value


def _fd_write(host: WasiHost) -> Callable[[int, int, int, int], int]:
    def fd_write(fd: int, iovecs: int, count: int, num_written: int) -> int:
        if fd not in (1, 2):
            return _BADF
        if count > _MAX_IOVECS:
            raise ValueError(f"fd_write with {count} buffers")
        table = memoryview(host.read(iovecs, 8 * count)).cast("I")
        total = 0
        for k in range(0, len(table), 2):
            host.log(host.read(table[k], table[k + 1]))
            total += table[k + 1]
        host.write(num_written, total.to_bytes(8, "little")[:4])
        return 0

    return fd_write


def _fd_fdstat_get(host: WasiHost) -> Callable[[int, int], int]:
    def fd_fdstat_get(fd: int, pointer: int) -> int:
        if fd > 2:
            return _BADF
        host.write(pointer, _CHARACTER_DEVICE)
        return 0

    return fd_fdstat_get


def _no_strings(host: WasiHost) -> Callable[[int, int], int]:
    def sizes_get(count: int, size: int) -> int:
        host.write(count, bytes(4))
        host.write(size, bytes(4))
        return 0

    return sizes_get


def _clock_time_get(host: WasiHost) -> Callable[[int, int, int], int]:
    def clock_time_get(clock: int, _precision: int, pointer: int) -> int:
        if clock != _MONOTONIC:
            return _PERM
        host.write(pointer, host.clock_ns().to_bytes(8, "little"))
        return 0

    return clock_time_get


def _random_get(host: WasiHost) -> Callable[[int, int], int]:
    def random_get(pointer: int, length: int) -> int:
        host.read(pointer, length)  # an invalid pointer fails before random bytes are made
        host.write(pointer, host.random(length))
        return 0

    return random_get


def _proc_exit(code: int) -> None:
    raise ExitError(f"proc_exit: {code}")
