"""The routes that end engines are for administrators, and without keys for callers on the server's own machine."""

import asyncio
from pathlib import Path

import httpx2 as httpx
import pytest

from aici_engine.server.api.app import create_app
from aici_engine.server.gateway.api_keys import Keys
from tests.engine.server.gateway.test_api_keys import ALICE, key_file
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over


def ask_all(address: str, *, keys: Keys | None = None, headers: dict[str, str] | None = None) -> dict[str, int]:
    """Call every route under /admin/ as a client at `address`. Return the statuses."""
    app = create_app(service_over(FakeEngine()), keys=keys)
    paths = [route.path for route, _ in app.state.policies.routes if route.path.startswith("/admin/")]

    async def main() -> dict[str, int]:
        transport = httpx.ASGITransport(app, client=(address, 4321))
        async with httpx.AsyncClient(transport=transport, base_url="http://it", headers=headers) as http:
            return {path: (await http.post(path.replace("{number}", "1"))).status_code for path in paths}

    return asyncio.run(main())


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_without_keys_the_servers_own_machine_is_the_administrator(address: str) -> None:
    assert ask_all(address) == {
        "/admin/drain": 200,
        "/admin/replicas/{number}/drain": 400,  # the model has no replicas
        "/admin/replicas/{number}/rejoin": 400,
    }


@pytest.mark.parametrize("address", ["10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1", ""])
def test_without_keys_all_others_are_refused(address: str) -> None:
    assert set(ask_all(address).values()) == {403}


def test_a_key_is_asked_for_wherever_the_caller_is(tmp_path: Path) -> None:
    keys = Keys(key_file(tmp_path))
    assert set(ask_all("127.0.0.1", keys=keys).values()) == {401}
    assert set(ask_all("127.0.0.1", keys=keys, headers={"api-key": "sk-bob"}).values()) == {403}
    assert ask_all("10.0.0.1", keys=keys, headers={"api-key": ALICE})["/admin/drain"] == 200
