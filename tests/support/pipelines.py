"""`aici stage` and `aici serve` on machines of tests/support/netns.py, and a client that notes when each text came."""

import asyncio
import contextlib
import json
import re
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx

from tests.support.cli import AICI
from tests.support.netns import Machine, Network
from tests.support.relay import Relay

_STARTED = re.compile(r"serving .* at (http://[^\s\"]+)")
_ADDRESS = re.compile(r"tcp://(?P<host>[^:]+):(?P<port>\d+)#(?P<key>.+)")
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


class Lines:
    """Reads a process's stream and notes each line with its time (`time.monotonic`)."""

    def __init__(self, stream: Any) -> None:
        self.lines: list[tuple[float, str]] = []
        self.ended = False
        self._changed = threading.Condition()
        threading.Thread(target=self._read, args=[stream], daemon=True).start()

    def _read(self, stream: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in stream:
                with self._changed:
                    self.lines.append((time.monotonic(), line))
                    self._changed.notify_all()
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def text(self) -> str:
        return "".join(line for _, line in self.lines)

    def first(self, pattern: str, *, since: float = 0) -> tuple[float, re.Match[str]] | None:
        """The first line after time `since` that matches."""
        for at, line in list(self.lines):
            if at >= since and (match := re.search(pattern, line)):
                return at, match
        return None

    def wait(self, pattern: str, timeout_s: float, *, since: float = 0) -> tuple[float, re.Match[str]]:
        """Wait for a line that matches. Raises AssertionError with everything that was said."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while (found := self.first(pattern, since=since)) is None:
                if self.ended or not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise AssertionError(f"no line matches {pattern!r}:\n{self.text()[-6000:]}")
        return found


class StageRun:
    """A stage in a machine, which may be killed and started again at the same address."""

    def __init__(self, machine: Machine, args: Sequence[str], env: Mapping[str, str], *, relayed: bool = False) -> None:
        self.machine, self._args, self._env = machine, list(args), env
        self.port = 0
        self.start()
        match = _ADDRESS.fullmatch(self.address)
        assert match is not None, self.address
        self.port = int(match["port"])
        self.relay = Relay(match["host"], self.port, host=machine.address, start=machine.start) if relayed else None
        self.seen_as = f"tcp://{machine.address}:{self.relay.port if self.relay else self.port}#{match['key']}"

    def start(self) -> None:
        listen = f"tcp://{self.machine.address}:{self.port}"
        argv = [*AICI, "stage", "--listen", listen, *self._args]
        self.process = self.machine.start(argv, env={**_ONE_THREAD, **self._env}, stderr=subprocess.PIPE)
        self.said = Lines(self.process.stderr)
        output = Lines(self.process.stdout)
        try:
            _, match = output.wait(r"tcp://\S+#\S+", 120)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said.text()}") from None
        self.address = match[0]

    def __repr__(self) -> str:
        return f"stage {self.machine.name} ({self.seen_as})"


class ServerRun:
    """`aici serve` in a machine. `said`: the lines on stderr."""

    def __init__(self, machine: Machine, args: Sequence[str], env: Mapping[str, str]) -> None:
        self.machine = machine
        argv = [*AICI, "serve", "--host", machine.address, "--port", "0", "--log-format", "json", *args]
        self.process = machine.start(
            argv, env={**_ONE_THREAD, **env}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        self.said = Lines(self.process.stderr)

    def wait_ready(self, timeout_s: float = 180) -> "ServerRun":
        self.url = self.said.wait(_STARTED.pattern, timeout_s)[1][1]
        return self

    def stats(self) -> dict[str, Any]:
        return httpx.get(f"{self.url}/stats", timeout=30).json()  # type: ignore[no-any-return]


@dataclass
class Pipeline:
    """Stages in machines of their own, and the server (the driver) in machine `driver`."""

    network: Network
    model: Path
    folder: Path
    cuts: tuple[int, ...]
    relayed: bool = False
    serve_args: tuple[str, ...] = ()
    stage_args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    memory_bytes: tuple[int | None, ...] = ()  # limits of the machines, the driver's last
    stage_memory: tuple[str, ...] = ()
    stages: list[StageRun] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.token_file = self.folder / "token"
        limits = self.memory_bytes or (None,) * (len(self.cuts) + 1)
        for number in range(len(self.cuts)):
            machine = self.network.machine(f"stage{number}", memory_bytes=limits[number])
            args = ["--model", str(self.model), "--token-file", str(self.token_file), *self.stage_args]
            args += ["--key-file", str(self.folder / f"key{number}")]
            args += ["--memory", self.stage_memory[number]] if self.stage_memory else []
            self.stages.append(StageRun(machine, args, self.env, relayed=self.relayed))
        self.driver = self.network.machine("driver", memory_bytes=limits[-1])
        self.server = self.serve()
        self.server.wait_ready()

    def serve(self) -> ServerRun:
        args = ["--model", str(self.model), "--threads", "1", *self.serve_args]
        if self.stages:
            args += ["--stages", ",".join(stage.seen_as for stage in self.stages)]
            args += ["--cuts", ",".join(map(str, self.cuts)), "--token-file", str(self.token_file)]
        return ServerRun(self.driver, args, self.env)


# The client


@dataclass
class Outcome:
    """What a client got. `texts`, `ends`, `errors`, `logs`: by fork. `times`: when events with text came."""

    texts: dict[int, str] = field(default_factory=dict)
    ends: dict[int, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    logs: dict[int, str] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    status: int = 0
    done: bool = False
    left: bool = False

    @property
    def said(self) -> tuple[dict[int, str], dict[int, str]]:
        """What must not depend on failures."""
        return self.texts, self.logs

    def gap_after(self, moment: float) -> float | None:
        """Seconds from `moment` to the next text, or None."""
        return next((at - moment for at in self.times if at > moment), None)


async def ask(
    http: httpx.AsyncClient, body: Mapping[str, Any], *, leave_after: int | None = None, into: Outcome | None = None
) -> Outcome:
    """Run a request of `/v1/run` to its end, or leave after that many events with text. `into` is filled meanwhile."""
    outcome = into or Outcome()
    try:
        async with http.stream("POST", "/v1/run", json=body) as answer:
            outcome.status = answer.status_code
            if answer.status_code != 200:
                outcome.errors.append((await answer.aread()).decode())
                outcome.done = True
                return outcome
            async for line in answer.aiter_lines():
                if line == "data: [DONE]":
                    outcome.done = True
                elif line.startswith("data: "):
                    _take(outcome, json.loads(line[6:]))
                if leave_after is not None and len(outcome.times) >= leave_after:
                    outcome.left = True
                    return outcome
    except httpx.HTTPError as error:
        outcome.errors.append(f"{type(error).__name__}: {error}")
    return outcome


def _take(outcome: Outcome, event: dict[str, Any]) -> None:
    if any(fork["text"] for fork in event.get("forks", [])):
        outcome.times.append(time.monotonic())
    for fork in event.get("forks", []):
        number = fork["index"]
        outcome.texts[number] = outcome.texts.get(number, "") + fork["text"]
        outcome.logs[number] = outcome.logs.get(number, "") + fork.get("logs", "")
        if fork["error"] and fork["error"] not in outcome.errors:
            outcome.errors.append(fork["error"])
        if fork.get("finish_reason"):
            outcome.ends[number] = fork["finish_reason"]


@contextlib.asynccontextmanager
async def client(url: str, timeout_s: float = 120) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=timeout_s, limits=limits) as http:
        yield http


VOTES = """
await $`Votes: `;
const me = await fork(3);
console.log(`fork ${me}`);
const vote = await gen({ regex: /[a-z]{20}/ });
setVar(`vote${me}`, vote);
if (me === 0) {
  const votes = await waitVars("vote0", "vote1", "vote2");
  await $` and the votes are ${votes.map((vote) => vote.decode()).join(", ")}.`;
}
"""
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 10, "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 2, "maxItems": 4},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def request(kind: str, number: int, length: int = 60) -> dict[str, Any]:
    """A request whose text is a function of its arguments. Kinds: plain, greedy, regex, schema, votes (forks)."""
    prompt = f"Request {number} of a long test, with a prompt of some pages. "
    draw = {"temperature": 0.8, "seed": number}
    if kind == "plain":
        return {"controller": "none", "controller_arg": prompt, "max_tokens": length, "ignore_eos": True, **draw}
    if kind == "greedy":
        return {"controller": "none", "controller_arg": prompt, "max_tokens": length, "ignore_eos": True}
    if kind == "regex":
        pattern = f"[a-z ]{{{length}}}"
        return {"controller": "regex", "controller_arg": pattern, "prompt": prompt, "max_tokens": 2 * length, **draw}
    if kind == "schema":
        return {
            "controller": "json_schema",
            "controller_arg": {"schema": SCHEMA},
            "prompt": prompt,
            "max_tokens": 400,
            **draw,
        }
    assert kind == "votes", kind
    return {"controller": "jsctrl", "controller_arg": VOTES, "prompt": prompt, "max_tokens": 200, **draw}


KINDS = ("plain", "regex", "schema", "votes")


async def together(url: str, bodies: Sequence[Mapping[str, Any]]) -> list[Outcome]:
    """Run requests at the same time."""
    async with client(url) as http:
        return await asyncio.gather(*(ask(http, body) for body in bodies))
