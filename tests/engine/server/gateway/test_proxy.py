"""Headers of proxies are believed from the proxies that the server is told of."""

import logging
from pathlib import Path

import pytest

from aici_base.errors import UsageError
from aici_engine.config import EngineConfig
from aici_engine.server.api.app import create_app
from aici_engine.server.config import ModelConfig, ServerConfig
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over
from tests.support.http import exchange, listening
from tests.support.lmtp import run


async def clients(
    caplog: pytest.LogCaptureFixture, trusted: tuple[str, ...], *headers: str, path: str = "/v1/models"
) -> list[str]:
    """Return the addresses in the log after a request with `headers`."""
    caplog.clear()
    lines = "".join(f"{header}\r\n" for header in headers)
    with caplog.at_level(logging.INFO):
        async with listening(create_app(service_over(FakeEngine())), trusted_proxies=trusted) as port:
            request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"
            assert (await exchange(port, request.encode())).startswith(b"HTTP/1.1 200")
    return [record.fields["client"] for record in caplog.records if hasattr(record, "fields")]


@pytest.mark.parametrize(
    ("trusted", "headers", "client"),
    [
        ((), ["X-Forwarded-For: 192.0.2.7"], "127.0.0.1"),
        (("10.0.0.0/8",), ["X-Forwarded-For: 192.0.2.7"], "127.0.0.1"),
        (("127.0.0.1",), [], "127.0.0.1"),
        (("127.0.0.1",), ["X-Forwarded-For: 192.0.2.7"], "192.0.2.7"),
        (("127.0.0.0/8",), ["X-Forwarded-For: 192.0.2.7"], "192.0.2.7"),
        # What the client itself has written stands first, and is not believed.
        (("127.0.0.1", "10.0.0.0/8"), ["X-Forwarded-For: 198.51.100.1, 192.0.2.7, 10.0.0.3"], "192.0.2.7"),
        (("127.0.0.1",), ["X-Forwarded-For: 2001:db8::1"], "2001:db8::1"),
        (("127.0.0.1",), ["Forwarded: for=192.0.2.7"], "127.0.0.1"),
        (("127.0.0.1",), [f"X-Forwarded-For: {'x' * 1000}"], "x" * 64),
    ],
)
@run
async def test_the_address_of_a_client(
    caplog: pytest.LogCaptureFixture, trusted: tuple[str, ...], headers: list[str], client: str
) -> None:
    assert await clients(caplog, trusted, *headers) == [client]


@run
async def test_the_environment_trusts_nobody(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    assert await clients(caplog, (), "X-Forwarded-For: 192.0.2.7") == ["127.0.0.1"]


@pytest.mark.parametrize("proxy", ["proxy.example.org", "10.0.0.1/8", "*", ""])
def test_proxies_are_addresses(proxy: str) -> None:
    models = (ModelConfig(engine=EngineConfig(model_dir=Path("m")), name="m"),)
    with pytest.raises(UsageError, match="neither an address nor a network"):
        ServerConfig(models=models, trusted_proxies=(proxy,))
