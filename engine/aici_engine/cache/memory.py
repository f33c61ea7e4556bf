"""The memory that this process may still take, by the machine and by its container."""

from collections.abc import Iterator
from pathlib import Path


def available_bytes(root: Path = Path("/")) -> int:
    """Return the available memory in bytes, by MemAvailable and by the limits of cgroup v1 and v2. Other limits are not
    seen.

    MemAvailable includes page cache that the kernel would give up, such as the model's own file; MemFree does not.
    `root`: the folder that contains /proc and /sys.
    """
    meminfo = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines())
    available = int(meminfo["MemAvailable"].split()[0]) * 1024
    return max(0, min([available, *_group_limits(root)]))


def resident_bytes() -> int:
    """Return the memory that this process has allocated and holds, without pages of files."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) * 1024


def _group_limits(root: Path) -> Iterator[int]:
    """Yield what the memory limits of this process's control groups leave, for every group up to the root."""
    groups = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = ["0::/"]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = groups / controllers if controllers else groups
        limit, usage = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        )
        own = top / path.lstrip("/")
        for group in (own, *own.parents):
            yield from _left(group, limit, usage)
            if group == top:
                break
        else:  # the path is of another namespace: a container sees its own group at the top
            yield from _left(top, limit, usage)


def _left(group: Path, limit: str, usage: str) -> Iterator[int]:
    """Yield the bytes below the limit, if there is a limit. File pages that the kernel would give up count as free."""
    try:
        most = (group / limit).read_text().strip()
        used = int((group / usage).read_text())
    except OSError:
        return
    if most == "max":
        return
    try:
        stat = dict(line.split(" ", 1) for line in (group / "memory.stat").read_text().splitlines())
    except OSError:
        stat = {}
    yield int(most) - used + int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
