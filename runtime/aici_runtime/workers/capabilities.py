"""Capabilities of Linux, given up for good."""

import ctypes
import os
import struct
from pathlib import Path
from typing import Final

DAC_OVERRIDE: Final = 1
DAC_READ_SEARCH: Final = 2
KILL: Final = 5
SETGID: Final = 6
SETUID: Final = 7
SYS_ADMIN: Final = 21
SYS_NICE: Final = 23

_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _CLEAR_ALL = 24, 47, 4
_VERSION_3 = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


def effective() -> int:
    """Return the capabilities that this process can use, one bit each."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16)


def forget_bounding_set() -> None:
    """Make sure that no later program can gain a capability. Without SETPCAP the set stays, and `no_new_privs` does."""
    _libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1


def keep_only(capabilities: int) -> None:
    """Give up all capabilities but these, one bit each. Raises OSError."""
    header = struct.pack("<Ii", _VERSION_3, 0)
    low, high = capabilities & 0xFFFFFFFF, capabilities >> 32
    content = struct.pack("<6I", low, low, 0, high, high, 0)
    if _libc.capset(header, content):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
