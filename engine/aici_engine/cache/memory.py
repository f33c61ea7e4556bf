"""How much memory this process may still take: what the machine has available, or what its container leaves."""

from pathlib import Path


def available_bytes(root: Path = Path("/")) -> int:
    """MemAvailable counts page cache that the kernel would give up, such as the model's own file; free memory does not.

    `root`: where /proc and /sys lie. A container's limit is read from cgroup v2; other limits are not seen.
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
