"""A client of LMTP, and a server whose engine plays the scripts of a test."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeAlias

from aici_engine.events import FinishReason
from aici_engine.server.link import wire
from aici_engine.server.service.service import Service
from tests.support.fake_engine import FakeEngine, Script
from tests.support.fake_service import service_over, shared_app
from tests.support.websocket import Socket

Item: TypeAlias = dict[str, Any]
_P = ParamSpec("_P")

EOS = 2
"""The tokenizer's EOS. The engine stops at token 0, too."""
GENERATE = {"stream_id": 1, "model": "it", "prompt": [5]}
"""The fewest fields of a stream."""


class Client:
    """Keeps the received frames, and the items of the frames by stream."""

    def __init__(self, socket: Socket, engine: FakeEngine, service: Service) -> None:
        self.socket = socket
        self.engine = engine
        self.service = service
        self.frames: list[tuple[str, list[Item]]] = []

    async def send(self, command: str, **fields: object) -> None:
        await self.socket.send(f"{command} {json.dumps(fields)}")

    async def generate(self, stream_id: object = 1, **fields: object) -> None:
        """Ask for one token unless `fields` say otherwise."""
        some = {"stream_id": stream_id, "model": "it", "prompt": [5, 6, 7], "max_tokens": 1}
        await self.send("GENERATE", **some | fields)

    async def frame(self) -> tuple[str, list[Item]]:
        command, _, body = (await self.socket.receive()).partition(" ")
        items = json.loads(body, parse_constant=_no_json)
        assert isinstance(items, list), "clients iterate it"
        assert all("stream_id" in item for item in items), "clients look it up"
        self.frames.append((command, items))
        return command, items

    async def stream(self, stream_id: object = 1) -> list[Item]:
        """Read until the stream ends and return its items. All frames read meanwhile are in `frames`."""
        found: list[Item] = []
        while True:
            command, items = await self.frame()
            if command == "TOKEN":
                found += [item for item in items if item["stream_id"] == stream_id]
                if found and ("error" in found[-1] or found[-1].get("finish_reason")):
                    return found

    async def message(self) -> Item:
        """The next item of a MSG."""
        while True:
            command, items = await self.frame()
            if command == "MSG":
                [item] = items
                return item


def _no_json(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@asynccontextmanager
async def connected(
    *scripts: Script, path: str = "/lmtp", capacity: int = 8, timeout_s: float = 30
) -> AsyncIterator[Client]:
    """Yield a client after the server's greeting."""
    info = wire.EngineInfo(vocab_size=49152, max_len=2048, max_num_seqs=4, eos_tokens=(0, EOS))
    engine = FakeEngine(list(scripts) or [tokens(11)], info=info)
    service = service_over(engine, capacity=capacity)
    async with asyncio.timeout(timeout_s), Socket(shared_app(service), f"{path}?greeting=1") as socket:
        client = Client(socket, engine, service)
        assert (await client.message())["event"] == "ready"
        yield client
    assert service.admission.num_admitted == 0


def tokens(*numbers: int, reason: FinishReason = FinishReason.LENGTH) -> Script:
    """Return a script of the tokens `numbers`, the earlier the likelier; EOS has no bytes. Give as many numbers as
    the request allows, or end with EOS."""

    def script(submit: wire.Submit) -> list[wire.StreamOut]:
        outs: list[wire.StreamOut] = [
            wire.TokenOut(
                submit.stream,
                token,
                b"" if token in (0, EOS) else b"x",
                "" if token in (0, EOS) else "x",
                False,
                -0.5 * n,
                [(9, -0.25), (token, -0.5 * n)],
            )
            for n, token in enumerate(numbers, 1)
        ]
        usage = wire.UsageOut(len(submit.prompt), len(numbers), 0)
        return [*outs, wire.FinishOut(submit.stream, reason, "", usage)]

    return script


def scores(submit: wire.Submit) -> list[wire.StreamOut]:
    """Score the tokens from `score_from` on, every token less likely than the token before; the first token of a
    prompt has no score."""
    start = submit.score_from or 0
    found: list[tuple[int, float | None, list[tuple[int, float]]]] = [
        (token, -float(place) if place else None, []) for place, token in enumerate(submit.prompt) if place >= start
    ]
    finish = wire.FinishOut(submit.stream, FinishReason.LENGTH, "", wire.UsageOut(len(submit.prompt), 0, 0))
    return [wire.ScoreOut(submit.stream, found), finish]


def run(test: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    """Turn a coroutine into a test."""

    @wraps(test)
    def running(*args: _P.args, **kwargs: _P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return running
