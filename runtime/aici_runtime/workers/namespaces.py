"""Namespaces of Linux for the processes of guests: a network without an address, and no System V objects of others.

A process without the right to make namespaces first makes a namespace of users, where the kernel counts processes apart
from the user's other processes, too.
"""

import ctypes
import os
from pathlib import Path
from typing import Final

from aici_runtime.workers import capabilities

_NEW_USER, _NEW_NETWORK, _NEW_IPC = 0x10000000, 0x40000000, 0x08000000
_FIRST_UID: Final = 0x70000000
_NUM_UIDS: Final = 1 << 22
_libc = ctypes.CDLL(None, use_errno=True)


def leave_others(able: int) -> tuple[bool, str]:
    """Enter new namespaces; `able`: the capabilities. Return whether this is a new namespace of users, and why there
    are no new namespaces; an empty reason: there are."""
    has_right = bool(able >> capabilities.SYS_ADMIN & 1)
    user, group = os.geteuid(), os.getegid()
    if user == 0 and not has_right:
        return False, "root lacks the capability SYS_ADMIN here"
    if _libc.unshare(_NEW_NETWORK | _NEW_IPC | (0 if has_right else _NEW_USER)):
        return False, f"the kernel refuses new namespaces: {os.strerror(ctypes.get_errno()).lower()}"
    if has_right:
        return False, ""
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError as error:
        return True, f"the new namespace of users knows no user: {error.strerror}"
    return True, ""


def unused_user() -> int | None:
    """Return the number of a user whom nobody but the forks of this process uses; None if there is no such number."""
    number = _FIRST_UID + os.getpid() % _NUM_UIDS
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, length = map(int, line.split())
        if first <= number < first + length:
            return number
    return None
