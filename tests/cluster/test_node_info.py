"""What a node says of itself."""

import pytest

from aici_engine.cluster import node_info
from aici_engine.cluster.headers import WEIGHT_BYTES
from aici_engine.cluster.node_info import budget, describe_node, process_bytes


def test_a_node_describes_itself() -> None:
    node = describe_node(num_threads=1)
    assert 0 < node.budget_bytes < node.free_bytes
    assert node.num_threads == 1
    assert 1e8 < node.bytes_per_s < 1e13
    assert set(node.flops_per_s) == set(WEIGHT_BYTES)
    info = node.node_info("a", rtt_s=0.1)
    assert (info.name, info.budget_bytes, info.rtt_s) == ("a", node.budget_bytes, 0.1)


@pytest.mark.parametrize(
    ("free", "fraction", "memory", "expected"),
    [
        (10 << 30, 0.5, None, (5 << 30) - process_bytes()),
        (10 << 30, 0.5, 6 << 30, (6 << 30) - process_bytes()),
        (10 << 30, 0.5, 60 << 30, (10 << 30) - process_bytes()),
        (1 << 20, 0.5, None, 0),
    ],
)
def test_the_budget_leaves_room_for_the_process(free: int, fraction: float, memory: int | None, expected: int) -> None:
    assert budget(free, fraction=fraction, memory_bytes=memory) == expected


def test_a_machine_without_torch_has_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    with_torch = budget(10 << 30)
    monkeypatch.setattr(node_info, "missing", list)  # every package is missing
    assert budget(10 << 30) - with_torch == (320 - 160) << 20
