"""The requests of the chaos driver: every protocol of the server, each request with an account of how it ended."""

import asyncio
import json
import math
import random
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

import httpx2 as httpx
import websockets

HUNG_S = 180.0
_DOWN_S = 0.05
_MODEL = "chaos"


class End(StrEnum):
    """How a request ended. REFUSED: before it began, with 429 or 503. FAILED: with an error of the server. CUT: the
    connection closed without an end. DOUBLE: with more than one end. UNREADABLE: the driver could not read the
    answer."""

    OK = "ok"
    REFUSED = "refused"
    INVALID = "invalid"
    FAILED = "failed"
    LEFT = "left"
    CUT = "cut"
    DOUBLE = "double"
    HUNG = "hung"
    UNREADABLE = "unread"


@dataclass
class Ends:
    """The ends of all requests, by protocol. `bad`: requests that hung, ended twice, or were cut while the server ran.

    `last_api_death`: by the monotonic clock; infinite while there is no API process. `kept`: paths of files, batches
    and responses that the server has promised to keep.
    """

    counts: Counter[tuple[str, End]] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    last_api_death: float = 0.0

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, protocol: str, end: End, why: str, began: float) -> None:
        self.counts[protocol, end] += 1
        self.seconds.append(time.monotonic() - began)
        if end in (End.HUNG, End.DOUBLE, End.UNREADABLE) or (end is End.CUT and self.last_api_death < began):
            self.bad.append(f"{protocol}: {end} after {time.monotonic() - began:.1f} s: {why}")
            print(f"BAD: {self.bad[-1]}", flush=True)
        elif why:
            self.reasons[f"{end}: {why[:100]}"] += 1


@dataclass(frozen=True)
class Target:
    """`url`: without a slash at the end. `guest`: the bytes of a controller, for uploads."""

    http: httpx.AsyncClient
    url: str
    guest: bytes
    ends: Ends


Result: TypeAlias = tuple[End, str]
Ask: TypeAlias = Callable[[Target, random.Random], Awaitable[Result]]


def _constraint(rng: random.Random) -> dict[str, Any]:
    return rng.choice([{}, {}, {"guided_regex": "[a-z]{4,20}"}, {"guided_choice": ["yes", "no", "perhaps"]}])


def _sampling(rng: random.Random) -> dict[str, Any]:
    return {"max_tokens": rng.choice([1, 4, 16, 60]), "seed": rng.randrange(1000), "temperature": rng.choice([0, 1])}


def _prompt(rng: random.Random) -> str:
    return "chaos " * rng.choice([1, 2, 10, 60])


async def _post(target: Target, path: str, body: dict[str, Any]) -> Result:
    answer = await target.http.post(path, json=body)
    if answer.status_code == 200 and path == "/v1/responses":
        target.ends.kept.append(f"/v1/responses/{answer.json()['id']}")
    return _of_status(answer.status_code, answer.text)


def _of_status(status: int, text: str) -> Result:
    if status == 200:
        return End.OK, ""
    if status in (429, 503):
        return End.REFUSED, f"{status} {text}"
    return (End.INVALID if status < 500 else End.FAILED), f"{status} {text}"


async def _stream(
    target: Target, path: str, body: dict[str, Any], ends_with: Callable[[dict[str, Any] | None], bool]
) -> Result:
    """`ends_with`: whether an event is the end of the stream; None is `[DONE]`."""
    num_ends, error = 0, ""
    async with target.http.stream("POST", path, json=body) as answer:
        if answer.status_code != 200:
            return _of_status(answer.status_code, (await answer.aread()).decode())
        async for line in _lines(answer):
            if not line.startswith(b"data: "):
                continue
            event = None if line == b"data: [DONE]" else json.loads(line[6:])
            num_ends += ends_with(event)
            error = error or _error_in(event)
    if num_ends > 1:
        return End.DOUBLE, f"{num_ends} ends"
    if error:
        return End.FAILED, error
    return (End.OK, "") if num_ends else (End.CUT, "no end")


async def _lines(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Yield lines. httpx also ends lines at U+0085 and U+2028, and texts of a random model have all characters."""
    rest = b""
    async for part in answer.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line


def _is_one_of(*kinds: str) -> Callable[[dict[str, Any] | None], bool]:
    return lambda event: event is not None and event.get("type") in kinds


def _error_in(event: dict[str, Any] | None) -> str:
    if event is None:
        return ""
    found = event.get("error") or (event.get("response") or {}).get("error")
    for fork in event.get("forks", ()):
        found = found or fork["error"]
    return str(found) if found else ""


async def completion(target: Target, rng: random.Random) -> Result:
    body = {"model": _MODEL, "prompt": _prompt(rng), **_sampling(rng), **_constraint(rng)}
    return await _post(target, "/v1/completions", body)


async def chat(target: Target, rng: random.Random) -> Result:
    body = {"model": _MODEL, "messages": [{"role": "user", "content": _prompt(rng)}], **_sampling(rng)}
    if rng.random() < 0.5:
        return await _post(target, "/v1/chat/completions", body | {"n": rng.choice([1, 3])})
    return await _stream(target, "/v1/chat/completions", body | {"stream": True}, lambda event: event is None)


async def message(target: Target, rng: random.Random) -> Result:
    body = {
        "model": _MODEL,
        "max_tokens": rng.choice([1, 16, 60]),
        "messages": [{"role": "user", "content": _prompt(rng)}],
    }
    if rng.random() < 0.5:
        return await _post(target, "/v1/messages", body)
    kinds = ("message_stop", "error")
    return await _stream(target, "/v1/messages", body | {"stream": True}, _is_one_of(*kinds))


async def response(target: Target, rng: random.Random) -> Result:
    body = {"model": _MODEL, "input": _prompt(rng), "max_output_tokens": rng.choice([16, 60])}
    if rng.random() < 0.5:
        return await _post(target, "/v1/responses", body)
    kinds = ("response.completed", "response.failed", "response.incomplete", "error")
    return await _stream(target, "/v1/responses", body | {"stream": True}, _is_one_of(*kinds))


async def run(target: Target, rng: random.Random) -> Result:
    plain: dict[str, Any] = {"controller": "none", "controller_arg": _prompt(rng), "ignore_eos": True}
    controlled: dict[str, Any] = {"controller": "regex", "controller_arg": "[a-z ]{60}", "prompt": _prompt(rng)}
    body = rng.choice([plain, controlled]) | {"max_tokens": rng.choice([4, 60])}
    return await _stream(target, "/v1/run", body, lambda event: event is None)


async def embedding(target: Target, rng: random.Random) -> Result:
    return await _post(target, "/v1/embeddings", {"model": _MODEL, "input": [_prompt(rng)] * rng.choice([1, 8])})


async def upload(target: Target, rng: random.Random) -> Result:
    """A custom section makes a new module of the same controller."""
    name = f"s{rng.randrange(4)}".encode()
    section = bytes([0, len(name) + 1, len(name)]) + name
    headers = {"content-type": "application/wasm"}
    answer = await target.http.post("/v1/controllers", content=target.guest + section, headers=headers)
    return _of_status(answer.status_code, answer.text)


async def batch(target: Target, rng: random.Random) -> Result:
    url = "/v1/completions"
    body = {"model": _MODEL, "prompt": _prompt(rng), "max_tokens": 4}
    lines = [json.dumps({"custom_id": str(n), "method": "POST", "url": url, "body": body}) for n in range(2)]
    files = {"file": ("lines.jsonl", "\n".join(lines).encode())}
    answer = await target.http.post("/v1/files", files=files, data={"purpose": "batch"})
    if answer.status_code != 200:
        return _of_status(answer.status_code, answer.text)
    file_id = answer.json()["id"]
    target.ends.kept.append(f"/v1/files/{file_id}")
    wanted = {"input_file_id": file_id, "endpoint": url, "completion_window": "24h"}
    answer = await target.http.post("/v1/batches", json=wanted)
    if answer.status_code == 200:
        target.ends.kept.append(f"/v1/batches/{answer.json()['id']}")
    return _of_status(answer.status_code, answer.text)


async def lmtp(target: Target, rng: random.Random) -> Result:
    """Two streams over one connection; each must have one last item."""
    wanted = {"1", "2"}
    last: Counter[str] = Counter()
    errors: list[str] = []
    async with websockets.connect(f"{target.url.replace('http', 'ws')}/lmtp", open_timeout=HUNG_S) as socket:
        for number in sorted(wanted):
            message = {
                "stream_id": int(number),
                "model": _MODEL,
                "prompt": [97] * rng.choice([3, 100]),
                "max_tokens": 9,
            }
            await socket.send(f"GENERATE {json.dumps(message)}")
        while set(last) < wanted:
            command, _, items = str(await socket.recv()).partition(" ")
            for item in json.loads(items) if command == "TOKEN" else ():
                if item.get("error"):
                    errors.append(str(item["error"]))
                if item.get("error") or item.get("finish_reason"):
                    last[str(item["stream_id"])] += 1
    if max(last.values()) > 1:
        return End.DOUBLE, str(last)
    return (End.FAILED, errors[0]) if errors else (End.OK, "")


ASKS: dict[str, tuple[Ask, int]] = {
    "completions": (completion, 5),
    "chat": (chat, 5),
    "messages": (message, 4),
    "responses": (response, 3),
    "run": (run, 5),
    "lmtp": (lmtp, 3),
    "embeddings": (embedding, 2),
    "upload": (upload, 1),
    "batches": (batch, 1),
}
"""Name → (request, how often)."""


async def client(target: Target, rng: random.Random, num_requests: Callable[[], bool]) -> None:
    """Send requests while `num_requests()` grants another one and the API process is there. One in eight leaves
    early."""
    names, weights = list(ASKS), [weight for _, weight in ASKS.values()]
    while num_requests():
        while target.ends.last_api_death == math.inf:
            await asyncio.sleep(_DOWN_S)
        [name] = rng.choices(names, weights)
        began = time.monotonic()
        patience_s = rng.random() * 0.3 if rng.random() < 0.125 else HUNG_S
        try:
            async with asyncio.timeout(patience_s):
                end, why = await ASKS[name][0](target, rng)
        except TimeoutError:
            end, why = (End.HUNG, "no end") if patience_s == HUNG_S else (End.LEFT, "")
        except websockets.InvalidStatus as error:
            end, why = End.REFUSED, repr(error)
        except json.JSONDecodeError as error:
            end, why = End.CUT, f"half an event: {error}"
        except (httpx.HTTPError, OSError, websockets.WebSocketException) as error:
            end, why = End.CUT, repr(error)
        except Exception:  # noqa: BLE001 an answer that the driver cannot read is a finding; the run goes on
            end, why = End.UNREADABLE, traceback.format_exc(limit=-2)
        target.ends.add(name, end, why, began)
        if end in (End.CUT, End.REFUSED):
            await asyncio.sleep(rng.random() * 0.5)
