"""Landlock: a process refuses itself files, TCP ports, abstract sockets, and signals to processes outside.

Called by number, because C libraries have no functions for Landlock. What an older kernel cannot refuse is left out.
"""

import ctypes
import os
import struct
from pathlib import Path

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_READ_FILE = 1 << 2

_NUM_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Rights on files by version of the interface; 16 since version 5."""
_TCP, _TCP_SINCE = 0b11, 4
_SCOPES, SCOPES_SINCE = 0b11, 6
"""Abstract sockets and signals."""

_syscall = ctypes.CDLL(None, use_errno=True).syscall


def version() -> int:
    """Return the version of the interface; 0 if the kernel has no Landlock or has it switched off."""
    return max(0, int(_syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)))


class Landlock:
    """A set of rules, made once. `enter` puts this process and all future children under the rules, for good."""

    def __init__(self, *, readable: Path | None = None) -> None:
        """Files beneath `readable` can be read; no other file can be used. Raises OSError."""
        abi = version()
        file_rights = (1 << _NUM_FILE_RIGHTS.get(abi, 16)) - 1
        rules = struct.pack("<Q", file_rights)
        if abi >= _TCP_SINCE:
            rules += struct.pack("<Q", _TCP)
        if abi >= SCOPES_SINCE:
            rules += struct.pack("<Q", _SCOPES)
        self._descriptor = _call(_CREATE, rules, ctypes.c_size_t(len(rules)), 0)
        if readable is not None:
            folder = os.open(readable, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("<Qi", _READ_FILE, folder)
                _call(_ADD_RULE, self._descriptor, _PATH_BENEATH, rule, 0)
            finally:
                os.close(folder)

    def enter(self) -> None:
        """Apply the rules to this process, which has `no_new_privs` and a single thread. Raises OSError."""
        _call(_RESTRICT, self._descriptor, 0)

    def close(self) -> None:
        """Close the descriptor of the rules."""
        os.close(self._descriptor)


def _call(*arguments: object) -> int:
    result = _syscall(*arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)
