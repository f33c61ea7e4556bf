"""Machines for tests of the cluster."""

from collections.abc import Iterator

import pytest

from tests.support import netns


@pytest.fixture
def network() -> Iterator[netns.Network]:
    """An empty switch; the test makes its machines. Skipped with its reason where there are no namespaces."""
    if reason := netns.missing():
        pytest.skip(reason)
    with netns.Network() as network:
        yield network
