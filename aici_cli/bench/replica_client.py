"""The clients of `aici bench replicas`: the administrator, chats, and a steady load of streams."""

import contextlib
import http.client
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from aici_base.errors import UnavailableError

PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.02


class ReplicaAdmin:
    """Asks a server for its replicas, and drains them."""

    def __init__(self, url: str) -> None:
        self.place = urlsplit(url).netloc

    def replicas(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("GET", "/replicas")["replicas"]
        return found

    def states(self) -> list[str]:
        return [each["state"] for each in self.replicas()]

    def drain(self, number: int) -> None:
        self._ask("POST", f"/admin/replicas/{number}/drain")
        self.wait_for(number, "drained")

    def rejoin(self, number: int) -> None:
        self._ask("POST", f"/admin/replicas/{number}/rejoin")
        self.wait_for(number, "up")

    def wait_for(self, number: int, state: str) -> float:
        """Wait until a replica has a state. Return the seconds. Raises UnavailableError after two minutes."""
        began = time.monotonic()
        while self.states()[number - 1] != state:
            if time.monotonic() - began > PATIENCE_S:
                raise UnavailableError(f"replica {number} is not {state} after {PATIENCE_S:g} s")
            time.sleep(_LOOK_S)
        return time.monotonic() - began

    def engine(self, number: int) -> int:
        """Return the process of a replica's engine: the process below this process on the replica's processors."""
        from aici_engine.server.link.engine_watch import below

        cpus = set(self.replicas()[number - 1]["cpus"])
        for pid in below(os.getpid()):
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                if name == "aici-engine" and os.sched_getaffinity(pid) == cpus:
                    return pid
        raise UnavailableError(f"replica {number} has no engine process on processors of its own")

    def _ask(self, method: str, path: str) -> Any:
        connection = http.client.HTTPConnection(self.place, timeout=PATIENCE_S)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise UnavailableError(f"{method} {path}: {answer.status} {body.decode()}")
        return json.loads(body)


def chat_cached_tokens(place: str, *, num_chats: int, num_turns: int, name: str) -> tuple[int, int]:
    """Run chats at the same time. Return the tokens of all prompts, and the cached tokens. Chats with a
    different `name` have different prompts."""

    def chat(number: int) -> tuple[int, int]:
        connection = http.client.HTTPConnection(place, timeout=PATIENCE_S)
        messages = [{"role": "system", "content": f"You keep the diary of the {name} village, house {number}. " * 8}]
        prompt = cached = 0
        for turn in range(num_turns):
            messages.append({"role": "user", "content": f"What happened on day {turn}? Tell it in a few sentences."})
            body = {"messages": messages, "max_tokens": 32, "temperature": 0}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
            prompt += answer["usage"]["prompt_tokens"]
            cached += answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        connection.close()
        return prompt, cached

    with ThreadPoolExecutor(num_chats) as pool:
        counts = list(pool.map(chat, range(num_chats)))
    return sum(prompt for prompt, _ in counts), sum(cached for _, cached in counts)


@dataclass(kw_only=True)
class StreamEnd:
    """The end of a stream. `first_s`: of the first output; None without output. Times are of the monotonic clock."""

    began_s: float
    ended_s: float
    first_s: float | None
    error: str


@dataclass
class SteadyLoad:
    """Clients that stream request after request. A context manager: leaving the context waits for the last requests."""

    place: str
    num_clients: int
    num_tokens: int
    ends: list[StreamEnd] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def errors(self) -> list[StreamEnd]:
        return [end for end in self.ends if end.error]

    def __enter__(self) -> Self:
        self._threads = [threading.Thread(target=self._client, args=(number,)) for number in range(self.num_clients)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _client(self, number: int) -> None:
        while not self._stop.is_set():
            self.ends.append(self._stream(f"Chapter {number}. It was a quiet morning in the village, and"))

    def _stream(self, prompt: str) -> StreamEnd:
        body = {"controller": "none", "controller_arg": prompt, "max_tokens": self.num_tokens, "ignore_eos": True}
        began, error = time.monotonic(), ""
        first: float | None = None
        connection = http.client.HTTPConnection(self.place, timeout=PATIENCE_S)
        try:
            connection.request("POST", "/v1/run", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                error = f"{answer.status} {answer.read().decode()}"
            for line in iter(answer.readline, b""):
                if line.startswith(b"data: {"):
                    for fork in json.loads(line[6:]).get("forks", ()):
                        error = error or fork["error"]
                        if fork["text"] and first is None:
                            first = time.monotonic()
        except (OSError, http.client.HTTPException) as failure:
            error = repr(failure)
        finally:
            connection.close()
        return StreamEnd(began_s=began, ended_s=time.monotonic(), first_s=first, error=error)
