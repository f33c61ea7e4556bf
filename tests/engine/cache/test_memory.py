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


def test_limits_of_groups_above_count_and_pages_of_files_are_free(tmp_path: Path) -> None:
    root = machine(tmp_path, 1024 * 1024)
    (root / "proc/self").mkdir()
    (root / "proc/self/cgroup").write_text("4:memory:/outer/inner\n3:cpu,cpuacct:/\n0::/outer\n")
    for path, kinds in {
        "memory/outer/inner": {"limit_in_bytes": 9 << 60, "usage_in_bytes": MIB},
        "memory/outer": {"limit_in_bytes": 500 * MIB, "usage_in_bytes": 300 * MIB},
        "outer": {"max": 900 * MIB, "current": MIB},
    }.items():
        (root / "sys/fs/cgroup" / path).mkdir(parents=True, exist_ok=True)
        for kind, number in kinds.items():
            (root / "sys/fs/cgroup" / path / f"memory.{kind}").write_text(f"{number}\n")
    assert available_bytes(root) == 200 * MIB
    stat = f"cache 1\ninactive_file 1\ntotal_inactive_file {50 * MIB}\n"
    (root / "sys/fs/cgroup/memory/outer/memory.stat").write_text(stat)
    assert available_bytes(root) == 250 * MIB


def test_a_container_sees_its_group_at_the_top(tmp_path: Path) -> None:
    root = machine(tmp_path, 1024 * 1024)
    (root / "proc/self").mkdir()
    (root / "proc/self/cgroup").write_text("4:memory:/docker/abc\n")
    group = root / "sys/fs/cgroup/memory"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text(f"{100 * MIB}\n")
    (group / "memory.usage_in_bytes").write_text(f"{40 * MIB}\n")
    assert available_bytes(root) == 60 * MIB


def test_this_machine_has_some() -> None:
    assert available_bytes() > 0
