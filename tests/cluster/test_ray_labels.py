"""A node daemon's address travels as labels of a Ray node."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_base.errors import UsageError
from aici_engine.cluster.ray_labels import from_labels, to_labels


@given(st.text(min_size=1, max_size=150))
def test_any_address_comes_back(address: str) -> None:
    labels = to_labels("node-1", address, {"gpu": "none"})
    assert from_labels({**labels, "ray.io/node-id": "12"}) == ("node-1", address)
    for value in labels.values():
        assert re.fullmatch(r"[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?", value)


@pytest.mark.parametrize(
    "labels", [{}, {"aici-name": "a"}, {"aici-address-0": "AA"}, {"aici-name": "a", "aici-address-0": "1"}]
)
def test_a_node_without_a_daemon_is_none_of_ours(labels: dict[str, str]) -> None:
    assert from_labels(labels) is None


@pytest.mark.parametrize(
    ("name", "extra"),
    [("", {}), ("-a", {}), ("a b", {}), ("a", {"b": "c:d"}), ("a", {"aici-name": "b"}), ("x" * 64, {})],
)
def test_names_that_ray_does_not_take_are_refused(name: str, extra: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="cannot be a label of a node"):
        to_labels(name, "tcp://h:1#k", extra)
