"""The speed of replicas under a steady load, and the processor time of a token."""

import contextlib
import http.client
import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aici_base.errors import UnavailableError
from aici_cli.bench.replica_client import PATIENCE_S, ReplicaAdmin

_WARM_UP_S: Final = 1.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadySpeed:
    """`engine_us`, `api_us`: microseconds of processor time per token of all engines and of the API process. The time
    of an engine contains its controller runtime."""

    tokens_per_s: float
    engine_us: float
    api_us: float


def steady_speed(admin: ReplicaAdmin, *, num_clients: int, num_tokens: int, seconds: float) -> SteadySpeed:
    """Return the speed for clients that send one request after the other, over `seconds` in which all of them are busy.

    The answers of a client have `num_tokens` tokens, its first answer fewer: so answers do not all end together.
    Raises UnavailableError for a request that fails.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(num_clients) as pool:
        clients = [
            pool.submit(_client, admin.place, number, num_tokens, 1 + num_tokens * (number + 1) // num_clients, stop)
            for number in range(num_clients)
        ]
        try:
            time.sleep(_WARM_UP_S)
            before, began, (engine, api) = _generated(admin), time.monotonic(), _cpu_s()
            stop.wait(seconds)
            tokens, took, (engine_after, api_after) = _generated(admin) - before, time.monotonic() - began, _cpu_s()
        finally:
            stop.set()
        for each in clients:
            each.result()
    if not tokens:
        raise UnavailableError("the engines have generated nothing", hint="measure for longer")
    return SteadySpeed(
        tokens_per_s=tokens / took,
        engine_us=(engine_after - engine) / tokens * 1e6,
        api_us=(api_after - api) / tokens * 1e6,
    )


def _client(place: str, number: int, num_tokens: int, first_tokens: int, stop: threading.Event) -> None:
    prompt = f"Chapter {number}. It was a quiet morning in the village, and"
    num = first_tokens
    with contextlib.closing(http.client.HTTPConnection(place, timeout=PATIENCE_S)) as connection:
        while not stop.is_set():
            body = json.dumps({"prompt": prompt, "max_tokens": num, "ignore_eos": True})
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
            if answer.status != 200:
                raise UnavailableError(f"a request failed: {answer.status} {said.decode()}")
            num = num_tokens


def _generated(admin: ReplicaAdmin) -> int:
    """Return the tokens that all engines of now have generated."""
    return sum(each["engine"]["tokens_generated"] for each in admin.replicas() if each["engine"])


def _cpu_s() -> tuple[float, float]:
    """Return the processor time of the engines with their runtimes, and of the API process, below this process."""
    from aici_engine.server.link.engine_watch import below

    engine = api = 0.0
    for pid in below(os.getpid()):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            seconds = sum(_times(pid)) / _TICKS_PER_S
            if name.startswith("aici"):
                engine += seconds
            else:
                api += seconds
    return engine, api


def _times(pid: int) -> Iterator[int]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    yield from map(int, fields[11:13])
