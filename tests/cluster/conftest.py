"""Machines for tests of the cluster."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.link_ends import Ends
from tests.support import netns


@pytest.fixture
def network() -> Iterator[netns.Network]:
    """An empty switch; the test makes its machines. Skipped with its reason where there are no namespaces."""
    if reason := netns.missing():
        pytest.skip(reason)
    with netns.Network() as network:
        yield network


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Groups of links, closed at the end of the test."""
    with ExitStack() as stack:
        yield Ends(stack)
