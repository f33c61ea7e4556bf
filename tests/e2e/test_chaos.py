"""Failures in the middle of many streams: unaffected streams notice nothing, and nothing is left behind."""

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.engine.support import write_tiny_model
from tests.support.processes import alive, command, descendants, shared_objects, wait_until
from tests.support.server import Server, serving

pytestmark = pytest.mark.e2e

KEY = "sk-chaos"
HEADERS = {"authorization": f"Bearer {KEY}"}
PROMPTS = [f"{number} times " for number in range(8)]
LENGTH = 1000
MANY = 1000
BUSY = ("admitted_sequences", "active_requests", "waiting_requests")
BROKEN_FRAMES = (b"\x8f\x80\0\0\0\0", b"\x81\x7e", b"\xff" * 100, b"\x81\xff\x7f" + b"\xff" * 20, b"\x81\x05hello")


@dataclass
class Outcome:
    text: str = ""
    ends: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    done: int = 0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"), context=4096, num_heads=2)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keys = tmp_path_factory.mktemp("keys") / "keys.toml"
    keys.write_text(f'[keys.chaos]\nkey = "{KEY}"\n')
    keys.chmod(0o600)
    return keys


@pytest.fixture(scope="module")
def server(model: Path, keys: Path) -> Iterator[Server]:
    with serving("--model", str(model), "--max-queue", str(2 * MANY), "--api-key-file", str(keys)) as server:
        yield server


@contextlib.asynccontextmanager
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=server.url, headers=HEADERS, timeout=60, limits=limits) as http:
        yield http


def plain(prompt: str, num_tokens: int = LENGTH) -> dict[str, Any]:
    return {"controller": "none", "controller_arg": prompt, "max_tokens": num_tokens, "ignore_eos": True}


def controlled(prompt: str) -> dict[str, Any]:
    return {"controller": "regex", "controller_arg": "[a-z ]{3000}", "prompt": prompt, "max_tokens": LENGTH}


async def run(http: httpx.AsyncClient, body: dict[str, Any], began: asyncio.Event | None = None) -> Outcome:
    """Run a request to the end. `began` is set when the first text comes."""
    outcome = Outcome()
    async with http.stream("POST", "/v1/run", json=body) as answer:
        if answer.status_code != 200:
            outcome.errors.append((await answer.aread()).decode())
            return outcome
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                outcome.done += 1
            elif line.startswith("data: "):
                _take(outcome, json.loads(line[6:]))
            if began is not None and outcome.text:
                began.set()
    return outcome


def _take(outcome: Outcome, event: dict[str, Any]) -> None:
    for fork in event.get("forks", []):
        outcome.text += fork["text"]
        if fork["error"]:
            outcome.errors.append(fork["error"])
        if fork.get("finish_reason"):
            outcome.ends.append(fork["finish_reason"])


@dataclass
class Sixteen:
    """Sixteen streams, all of which have begun."""

    plain: list[asyncio.Task[Outcome]]
    controlled: list[asyncio.Task[Outcome]]

    async def ends(self) -> tuple[list[Outcome], list[Outcome]]:
        return await asyncio.gather(*self.plain), await asyncio.gather(*self.controlled)

    async def leave(self) -> None:
        for task in (*self.plain, *self.controlled):
            task.cancel()
        await asyncio.gather(*self.plain, *self.controlled, return_exceptions=True)


async def sixteen(http: httpx.AsyncClient) -> Sixteen:
    began = [asyncio.Event() for _ in range(16)]
    ones = [asyncio.create_task(run(http, plain(p), b)) for p, b in zip(PROMPTS, began[:8], strict=True)]
    others = [asyncio.create_task(run(http, controlled(p), b)) for p, b in zip(PROMPTS, began[8:], strict=True)]
    await asyncio.gather(*(event.wait() for event in began))
    return Sixteen(ones, others)


@pytest.fixture(scope="module")
def undisturbed(server: Server) -> tuple[list[str], list[str]]:
    """The texts of plain and controlled streams without a failure."""

    async def main() -> tuple[list[Outcome], list[Outcome]]:
        async with client(server) as http:
            return await (await sixteen(http)).ends()

    ones, others = asyncio.run(main())
    for outcome in (*ones, *others):
        assert outcome.ends == ["length"], outcome
        assert outcome.done == 1
    assert len({outcome.text for outcome in ones}) == 8
    return [outcome.text for outcome in ones], [outcome.text for outcome in others]


def disturb(server: Server, with_what: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]) -> Any:
    """Start sixteen streams and call `with_what` in the middle."""

    async def main() -> tuple[list[Outcome], list[Outcome]]:
        async with client(server) as http:
            streams = await sixteen(http)
            try:
                await with_what(http)
                return await streams.ends()
            finally:
                # After a failed assertion, the test ends now and not with its streams.
                await streams.leave()

    return asyncio.run(main())


def pids(server: Server, name: str) -> set[int]:
    return {pid for pid in descendants(server.process.pid) if command(pid) == name}


async def figures(http: httpx.AsyncClient) -> dict[str, float]:
    page = (await http.get("/metrics")).text
    figures = {key: float(value) for key, value in re.findall(r"^(aici_\S+) (\S+)$", page, re.MULTILINE)}
    # The server has one model.
    return {re.sub(r'model="[^"]*",?', "", key).replace("{}", ""): value for key, value in figures.items()}


async def settled(http: httpx.AsyncClient) -> dict[str, float]:
    """Return the figures as soon as no request runs or waits."""
    async with asyncio.timeout(60):
        while True:
            now = await figures(http)
            if (
                now["aici_admitted_sequences"]
                == now.get("aici_active_requests")
                == now.get("aici_waiting_requests")
                == 0
            ):
                return now


async def healthy(http: httpx.AsyncClient) -> None:
    async with asyncio.timeout(60):
        while (await http.get("/health")).status_code != 200:
            await asyncio.sleep(0.05)


def test_a_pool_is_killed(server: Server, undisturbed: tuple[list[str], list[str]]) -> None:
    async def kill(http: httpx.AsyncClient) -> None:
        os.kill(min(pids(server, "aicirt-pool")), signal.SIGKILL)

    ones, others = disturb(server, kill)
    assert [outcome.text for outcome in ones] == undisturbed[0]
    hit = [outcome for outcome in others if outcome.ends == ["fail"]]
    assert hit
    assert all(outcome.errors for outcome in hit)
    kept = [(o.text, expected) for o, expected in zip(others, undisturbed[1], strict=True) if o not in hit]
    assert all(text == expected for text, expected in kept)


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_the_runtime_is_killed_or_stopped(
    server: Server, undisturbed: tuple[list[str], list[str]], fault: signal.Signals
) -> None:
    async def kill(http: httpx.AsyncClient) -> None:
        [runtime] = {pid for pid in pids(server, "aicirt") if not pids(server, "aicirt") & {_parent(pid)}}
        os.kill(runtime, fault)

    ones, others = disturb(server, kill)
    assert [outcome.text for outcome in ones] == undisturbed[0]
    for outcome in others:
        assert outcome.ends == ["fail"]
        assert outcome.errors

    async def again() -> None:
        async with client(server) as http, asyncio.timeout(60):
            outcome = await run(http, controlled(PROMPTS[0]))
            assert (outcome.errors, outcome.text) == ([], undisturbed[1][0])
            assert (await settled(http))["aici_cache_usage"] == 0

    asyncio.run(again())


def test_the_engine_is_killed(server: Server, undisturbed: tuple[list[str], list[str]]) -> None:
    async def kill(http: httpx.AsyncClient) -> None:
        before = await figures(http)
        [engine] = pids(server, "aici-engine")
        below = descendants(engine)
        os.kill(engine, signal.SIGKILL)
        async with asyncio.timeout(60):
            while (health := await http.get("/health")).status_code == 200:
                await asyncio.sleep(0)
            assert (health.json()["status"], health.json()["model_loaded"]) == ("unavailable", False)
            assert (await http.get("/ready")).status_code == 503
            assert (await http.post("/v1/run", json=plain("x"))).status_code == 503
        await healthy(http)
        assert (await figures(http))["aici_engine_restarts_total"] == before["aici_engine_restarts_total"] + 1
        assert not alive(below)
        assert not shared_objects(engine)

    ones, others = disturb(server, kill)
    for outcome in (*ones, *others):
        assert outcome.ends == ["fail"]
        assert outcome.errors
        assert outcome.done == 1

    async def again() -> None:
        async with client(server) as http:
            assert (await run(http, plain(PROMPTS[0]))).text == undisturbed[0][0]
            assert (await run(http, controlled(PROMPTS[0]))).text == undisturbed[1][0]

    asyncio.run(again())


def test_clients_misbehave(server: Server, undisturbed: tuple[list[str], list[str]]) -> None:
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))

    async def misbehave(http: httpx.AsyncClient) -> None:
        for body in (b"{", b"[" * 100_000, b"x" * (6 << 20), b'"' + b"a" * (6 << 20) + b'"', b"\xff\x00", b"null"):
            answer = await http.post("/v1/run", content=body)
            assert answer.status_code in (400, 422), body[:10]
        answer = await http.post("/v1/run", content=b"x" * (9 << 20))
        assert answer.status_code == 413
        for wrong in ([], [(b"authorization", b"Bearer wrong")], [(b"x-api-key", b"\x80")]):
            stranger = httpx.AsyncClient(base_url=server.url)
            async with stranger:
                assert (await stranger.post("/v1/run", json=plain("x"), headers=wrong)).status_code == 401
        for frame in (
            b"\x8f\x80\0\0\0\0",
            b"\x81\x7e",
            b"\xff" * 100,
            b"\x81\xff" + b"\x7f" + b"\xff" * 20,
            b"\x81\x05hello",
        ):
            reader, writer = await upgraded(address)
            writer.write(frame)
            writer.write_eof()
            await reader.read()
            writer.close()

    with contextlib.closing(SlowReader(address)) as slow:
        ones, others = disturb(server, misbehave)
        assert [outcome.text for outcome in ones] == undisturbed[0]
        assert [outcome.text for outcome in others] == undisturbed[1]
        assert b"data: [DONE]" in slow.rest()


def test_keys_are_read_again_on_sighup(server: Server, keys: Path, undisturbed: tuple[list[str], list[str]]) -> None:
    async def reload(http: httpx.AsyncClient) -> None:
        assert (await http.get("/stats", headers={"authorization": "Bearer new"})).status_code == 401
        keys.write_text(keys.read_text() + "[keys.new]\nkey = 'new'")
        os.kill(server.process.pid, signal.SIGHUP)
        async with asyncio.timeout(60):
            while (await http.get("/stats", headers={"authorization": "Bearer new"})).status_code != 200:
                await asyncio.sleep(0)

    ones, _ = disturb(server, reload)
    assert [outcome.text for outcome in ones] == undisturbed[0]


class SlowReader:
    """Asks for a stream and reads one byte. `rest` reads the bytes that were waiting."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self._socket.settimeout(60)
        self._socket.connect(address)
        body = json.dumps(plain("slow", 2000)).encode()
        head = (
            f"POST /v1/run HTTP/1.1\r\nHost: it\r\napi-key: {KEY}\r\nConnection: close\r\nContent-Length: {len(body)}"
        )
        self._socket.sendall(head.encode() + b"\r\nContent-Type: application/json\r\n\r\n" + body)
        assert self._socket.recv(1) == b"H"

    def rest(self) -> bytes:
        parts = []
        while part := self._socket.recv(1 << 16):
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()


async def upgraded(address: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(
        f"GET /lmtp?api_key={KEY} HTTP/1.1\r\nHost: it\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def test_a_thousand_wait_and_half_of_them_leave(server: Server) -> None:
    rng = random.Random(7)

    async def wave(http: httpx.AsyncClient) -> None:
        before = await settled(http)
        tasks = [asyncio.create_task(run(http, plain(f"{n}", 8))) for n in range(MANY)]
        leaving = rng.sample(tasks, MANY // 2)
        staying = [task for task in tasks if task not in set(leaving)]
        ended = 0
        for one in asyncio.as_completed(staying):
            outcome = await one
            assert (outcome.ends, outcome.done, outcome.errors) == (["length"], 1, [])
            ended += 1
            if leaving and rng.random() < 0.5:
                for task in [leaving.pop() for _ in range(min(len(leaving), rng.randrange(8)))]:
                    task.cancel()
        for task in leaving:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert ended == MANY // 2
        after = await settled(http)
        assert after["aici_cache_usage"] == 0
        counted = {reason: _count(after, reason) - _count(before, reason) for reason in ("length", "abort", "fail")}
        assert counted["fail"] == 0
        assert MANY // 2 <= sum(counted.values()) <= MANY

    async def main() -> None:
        async with client(server) as http:
            await wave(http)
            sizes = memory(server)
            await wave(http)
            for pid, size in memory(server).items():
                assert size < sizes[pid] + (16 << 20), command(pid)

    asyncio.run(main())


def _count(figures: dict[str, float], reason: str) -> float:
    return figures.get(f'aici_sequences_total{{reason="{reason}"}}', 0.0)


def memory(server: Server) -> dict[int, int]:
    """Return the resident bytes of the API process and of the engine."""
    return {
        pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
        for pid in {server.process.pid, *pids(server, "aici-engine")}
    }


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_idle_processes_sleep(server: Server) -> None:
    async def main() -> None:
        async with client(server) as http:
            await settled(http)

    asyncio.run(main())
    watched = {server.process.pid, *descendants(server.process.pid)}
    assert wait_until(lambda: not woken(watched, 1.0), 30)


def woken(pids: set[int], seconds: float) -> dict[str, int]:
    """Return which processes went to sleep more than twice within `seconds`, and how often: a timer from before may
    cause a sleep or two."""
    before = {pid: _sleeps(pid) for pid in pids}
    time.sleep(seconds)
    counts = {command(pid): _sleeps(pid) - before[pid] for pid in pids}
    return {name: count for name, count in counts.items() if count > 2}


def _sleeps(pid: int) -> int:
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(re.findall(r"^voluntary_ctxt_switches:\s*(\d+)", text, re.MULTILINE)[0]) for text in texts)


def test_the_log_is_json_and_says_nothing_secret(server: Server, undisturbed: tuple[list[str], list[str]]) -> None:
    lines = [json.loads(line) for line in server.said]
    assert {"api", "engine"} >= {line["process"] for line in lines}
    runs = [line for line in lines if line.get("path") == "/v1/run" and line["status"] == 200]
    assert runs
    assert all(line["request_id"] and line["who"] == "chaos" for line in runs)
    everything = "".join(server.said)
    for secret in (KEY, PROMPTS[0], undisturbed[0][0][:20]):
        assert secret not in everything


def test_the_server_is_killed_and_nothing_is_left(server: Server) -> None:
    """Must be the last test of the file: the test kills the shared server."""
    below = descendants(server.process.pid)
    [engine] = pids(server, "aici-engine")

    async def main() -> None:
        async with client(server) as http:
            streams = await sixteen(http)
            server.process.kill()
            with pytest.raises(httpx.HTTPError):
                await streams.ends()
            await asyncio.gather(*streams.plain, *streams.controlled, return_exceptions=True)

    asyncio.run(main())
    assert wait_until(lambda: not alive(below), 30)
    assert not shared_objects(engine)
