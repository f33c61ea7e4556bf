"""The memory for the cache, read from made-up /proc and /sys."""

from pathlib import Path

import pytest

from aici_engine.cache.memory import available_bytes

MIB = 1 << 20


def machine(root: Path, available_kib: int, **group: str) -> Path:
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(
        f"MemTotal:       99999999 kB\nMemFree:               1 kB\nMemAvailable:   {available_kib:8} kB\n"
    )
    if group:
        (root / "sys/fs/cgroup").mkdir(parents=True)
        for name, text in group.items():
            (root / "sys/fs/cgroup" / f"memory.{name}").write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("group", "expected_mib"),
    [
        ({}, 1024),
        ({"max": "max", "current": "5"}, 1024),
        ({"max": str(512 * MIB), "current": str(200 * MIB)}, 312),
        ({"max": str(4096 * MIB), "current": str(MIB)}, 1024),
        ({"max": str(MIB), "current": str(2 * MIB)}, 0),
        ({"max": str(MIB)}, 1024),
    ],
)
def test_the_tighter_limit_counts(tmp_path: Path, group: dict[str, str], expected_mib: int) -> None:
    assert available_bytes(machine(tmp_path, 1024 * 1024, **group)) == expected_mib * MIB


def test_this_machine_has_some() -> None:
    assert available_bytes() > 0
