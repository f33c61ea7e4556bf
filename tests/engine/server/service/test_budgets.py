"""Budgets of keys by the minute, and what keys have used."""

import asyncio
from pathlib import Path

import httpx2 as httpx
import pytest

from aici_base.errors import RateLimitError, UsageError
from aici_engine.server.api.app import create_app
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.link import wire
from aici_engine.server.service.admission import Admission, Principal
from tests.engine.server.gateway.test_api_keys import key_file
from tests.support.admission import pass_through
from tests.support.fake_engine import FakeEngine, forked, says
from tests.support.fake_service import service_over
from tests.support.lmtp import run

KEYS = """
[keys.alice]
key = "sk-alice"
admin = true

[keys.bob]
key = "sk-bob"
tokens_per_minute = 10
guest_cpu_per_minute = 2.5
"""


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@run
async def test_tokens_a_minute() -> None:
    clock = Clock()
    admission = Admission(8, clock=clock)
    bob = Principal(name="bob", tokens_per_minute=60)
    await pass_through(admission, bob)
    admission.budgets.spend_tokens("bob", 59)
    await pass_through(admission, bob)
    admission.budgets.spend_tokens("bob", 31)
    with pytest.raises(
        RateLimitError, match=r"the key bob may use 60 tokens a minute \(tokens_per_minute\): -30.0 left"
    ) as e:
        await pass_through(admission, bob)
    assert e.value.retry_after_s == 31
    await pass_through(admission, Principal(name="alice"))
    clock.now += 31
    await pass_through(admission, bob)
    assert admission.num_admitted == 0


@run
async def test_guest_time_a_minute() -> None:
    clock = Clock()
    admission = Admission(8, clock=clock)
    bob = Principal(name="bob", guest_cpu_per_minute=30.0)
    await pass_through(admission, bob)
    admission.budgets.spend_guest_time({"bob": 40.0, "alice": 1000.0})
    with pytest.raises(
        RateLimitError, match=r"30 seconds of processor time a minute \(guest_cpu_per_minute\): -10.0 left"
    ):
        await pass_through(admission, bob)
    with pytest.raises(RateLimitError):
        await pass_through(admission.beside(4), bob)
    clock.now += 22
    await pass_through(admission, bob)
    assert admission.budgets.used_by("alice") == {"tokens": 0, "guest_cpu_seconds": 1000.0}


@run
async def test_a_new_bound_counts_from_the_next_request_on() -> None:
    admission = Admission(8, clock=Clock())
    await pass_through(admission, Principal(name="bob", tokens_per_minute=100))
    admission.budgets.spend_tokens("bob", 50)
    assert await admission.budgets.left("bob") == {"tokens_per_minute": 50}
    await pass_through(admission, Principal(name="bob", tokens_per_minute=10))
    assert await admission.budgets.left("bob") == {"tokens_per_minute": 10}
    await pass_through(admission, Principal(name="bob"))
    assert await admission.budgets.left("bob") == {}


def test_the_key_file(tmp_path: Path) -> None:
    bob = Keys(key_file(tmp_path, KEYS)).principal_named("bob")
    assert bob is not None
    assert (bob.tokens_per_minute, bob.guest_cpu_per_minute) == (10, 2.5)
    assert bob.share.guest_cpu_s == 2.5
    whole = Keys(key_file(tmp_path, KEYS.replace("2.5", "2"))).principal_named("bob")
    assert whole is not None
    assert whole.guest_cpu_per_minute == 2
    for bad in ("0", "-1", "inf", "nan", '"3"', "true"):
        with pytest.raises(UsageError, match=r"keys.bob.guest_cpu_per_minute must be"):
            Keys(key_file(tmp_path, KEYS.replace("2.5", bad)))
    with pytest.raises(UsageError, match="tokens_per_minute must be 1 or more"):
        Keys(key_file(tmp_path, KEYS.replace("10", "0")))


def test_over_http(tmp_path: Path) -> None:
    """A key over its budget gets 429 with Retry-After, sees what it has used, and nothing of other keys."""
    engine = FakeEngine([forked], calls={"stats": {}})
    service = service_over(engine)
    app = create_app(service, keys=Keys(key_file(tmp_path, KEYS)))
    body = {"prompt": "Hello", "max_tokens": 8}
    bob, alice = {"api-key": "sk-bob"}, {"api-key": "sk-alice"}

    async def main() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://it") as http:
            assert (await http.post("/v1/completions", headers=bob, json=body)).status_code == 200
            stats = (await http.get("/stats", headers=bob)).json()
            assert stats["key_tokens"] == 1 + 6, "a token of the prompt, and those of all forks"
            assert stats["key_tokens_per_minute_left"] == pytest.approx(3, abs=1)
            engine.client.receive(wire.GuestTimeOut({"bob": 3.0, "alice": 1.0}))
            refused = await http.post("/v1/completions", headers=bob, json=body)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert "guest_cpu_per_minute" in refused.json()["error"]["message"]
            assert (await http.post("/v1/completions", headers=alice, json=body)).status_code == 200
            page = (await http.get("/metrics", headers=bob)).text
            assert 'aici_key_guest_cpu_seconds_total{key="bob"} 3.0' in page
            assert "alice" not in page
            page = (await http.get("/metrics", headers=alice)).text
            assert 'aici_key_guest_cpu_seconds_total{key="alice"} 1.0' in page
            assert 'aici_key_tokens_total{key="bob"} 7.0' in page

    asyncio.run(main())


def test_without_keys_the_use_is_counted_too() -> None:
    service = service_over(FakeEngine([says("a", "b")], calls={"stats": {}}))
    app = create_app(service)

    async def main() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://it") as http:
            await http.post("/v1/completions", json={"prompt": "Hello", "max_tokens": 8})
            assert (await http.get("/stats")).json()["key_tokens"] == 3

    asyncio.run(main())
