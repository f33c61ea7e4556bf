"""Clients of `/v1/responses` against our server, where their environments are: `python -m tests.clients.responses
--make` makes them."""

from collections.abc import Iterator

import pytest

from tests.clients.responses.clients import CLIENTS, SERVE_ARGS, Client
from tests.support.server import Server, serving

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*SERVE_ARGS) as server:
        yield server


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.timeout(300)
def test_client(client: Client, request: pytest.FixtureRequest) -> None:
    if not client.is_made:
        pytest.skip("its environment is not there")
    found = client.run(request.getfixturevalue("server").url)
    assert all(found.values()), found
