"""Send requests to a server and record the arrival times of tokens.

Runs in a separate process, so that measuring does not share an interpreter with the server. A plan arrives as JSON on
stdin; the results go to stdout as JSON. Uses only asyncio: a slower client would measure itself.
"""

import asyncio
import json
import random
import ssl
import sys
import time
import urllib.parse
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(kw_only=True)
class Seen:
    """Times of one request, in seconds since the start of the plan.

    `due`: when the request should have been sent, so that a delay in the client counts like a delay in the server.
    `tokens_at`: arrivals of events with new tokens.
    """

    due: float
    tokens_at: list[float] = field(default_factory=list)
    num_tokens: int = 0
    ended: float = 0.0
    error: str = ""


class Load:
    """A client of `/v1/run`. The requests use `bodies` in turn."""

    def __init__(self, url: str, headers: dict[str, str], bodies: list[dict[str, Any]]) -> None:
        parts = urllib.parse.urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._head = f"POST {parts.path}/run HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
        self._head += f"Content-Type: application/json\r\n{lines}"
        self._bodies = [json.dumps(body).encode() for body in bodies]
        self._sent = 0
        self._began = time.perf_counter()

    async def closed(self, *, concurrency: int, num_requests: int) -> list[Seen]:
        """Run `concurrency` clients. A client sends its next request when the last one has ended."""
        left = iter(range(num_requests))

        async def client() -> list[Seen]:
            return [await self._request(self._now()) for _ in left]

        every = await asyncio.gather(*(client() for _ in range(concurrency)))
        return [seen for one in every for seen in one]

    async def arriving(self, *, rate: float, num_requests: int, seed: int) -> list[Seen]:
        """Send requests with Poisson arrivals: `rate` per second on average, independent of the server's speed."""
        rng = random.Random(seed)
        due, tasks = self._now(), []
        for _ in range(num_requests):
            due += rng.expovariate(rate)
            await asyncio.sleep(due - self._now())
            tasks.append(asyncio.create_task(self._request(due)))
        return await asyncio.gather(*tasks)

    def _now(self) -> float:
        return time.perf_counter() - self._began

    async def _request(self, due: float) -> Seen:
        seen = Seen(due=due)
        body = self._bodies[self._sent % len(self._bodies)]
        self._sent += 1
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=1 << 20)
            writer.write(f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await self._answer(reader, seen)
            writer.close()
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            seen.error = repr(error)
        seen.ended = self._now()
        return seen

    async def _answer(self, reader: asyncio.StreamReader, seen: Seen) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split()[1] != b"200":
            seen.error = f"{head.split()[1].decode()} {(await reader.read()).decode()}"
            return
        async for event in _events(reader):
            at = self._now()
            num_tokens = 0
            for fork in event.get("forks", []):
                seen.error = seen.error or fork["error"]
                num_tokens += len(fork["tokens"])
            if num_tokens:
                seen.num_tokens += num_tokens
                seen.tokens_at.append(at)


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """Yield the server-sent events of a chunked body. An event may span chunks."""
    rest = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        rest += (await reader.readexactly(size + 2))[:-2]
        *whole, rest = rest.split(b"\n\n")
        for event in whole:
            if event.startswith(b"data: {"):
                yield json.loads(event[6:])


async def _main(plan: dict[str, Any]) -> list[dict[str, Any]]:
    load = Load(plan["url"], plan["headers"], plan["bodies"])
    how = plan["how"]
    seen = await (load.arriving(**how) if "rate" in how else load.closed(**how))
    return [asdict(one) for one in seen]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_main(json.load(sys.stdin)))))
