"""The memory that this process may still take, by the machine and by its container."""

from pathlib import Path


def available_bytes(root: Path = Path("/")) -> int:
    """Return the available memory in bytes, by MemAvailable and by the limit of cgroup v2. Other limits are not seen.

    MemAvailable includes page cache that the kernel would give up, such as the model's own file; MemFree does not.
    `root`: the folder that contains /proc and /sys.
    """
    meminfo = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines())
    available = int(meminfo["MemAvailable"].split()[0]) * 1024
    group = root / "sys/fs/cgroup"
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
    except OSError:
        return available
    return available if limit == "max" else max(0, min(available, int(limit) - used))
