"""What the victim and a third key feel, in a window of time."""

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from aici_cli.bench.abuse.attacks import Probe
from aici_cli.bench.abuse.client import Body, Client
from aici_cli.bench.abuse.guests import guest, renamed

_PROBE_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Seconds. `gaps_s`: between tokens. `longest_s`: the longest time without a token, before the first one too.

    `waits_s`: of the third key, for complete answers; `refused`: its answers that were none, as text.
    """

    gaps_s: Sequence[float]
    longest_s: float
    failures: Sequence[str]
    waits_s: Sequence[float]
    refused: Sequence[str]

    def gap_s(self, percent: float) -> float:
        ordered = sorted(self.gaps_s) or [self.longest_s]
        return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]

    @property
    def wait_s(self) -> float:
        """The third key's longest wait."""
        return max(self.waits_s, default=math.nan)


class Victim:
    """A context manager that runs `victim.py` and keeps the times of its tokens."""

    def __init__(self, client: Client) -> None:
        body: dict[str, Any] = {"controller": "none", "controller_arg": "It was a quiet morning in the village, and"}
        body |= {"max_tokens": 200, "ignore_eos": True, "return_tokens": True}
        self._plan = {"url": client.url, "headers": dict(client.headers), "timeout_s": client.timeout_s, "body": body}
        self.events: list[tuple[str, float, str]] = []

    def __enter__(self) -> "Victim":
        command = [sys.executable, "-P", "-m", "aici_cli.bench.abuse.victim"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._plan) + "\n")
        self._process.stdin.flush()
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            what, at, *more = line.split(" ", 2)
            self.events.append((what, float(at), " ".join(more).strip()))

    def wait_for_tokens(self, count: int, limit_s: float) -> bool:
        """Wait until so many more tokens have come. Return whether they have."""
        since, until = time.monotonic(), time.monotonic() + limit_s
        while time.monotonic() < until:
            if sum(what == "token" and at >= since for what, at, _ in self.events[-count * 2 - 10 :]) >= count:
                return True
            time.sleep(0.02)
        return False

    def between(self, begin: float, end: float) -> tuple[list[float], float, list[str]]:
        """Return the gaps between tokens, the longest time without a token, and the failures.

        A gap belongs to a window that it overlaps, and counts whole. A gap that is open now lasts until now.
        """
        gaps, longest, failures = [], 0.0, []
        before: tuple[str, float] | None = None
        for what, at, why in [*self.events, ("now", time.monotonic(), "")]:
            if (
                before is not None
                and before[1] < end
                and at > begin
                and before[0] in ("sent", "token")
                and what != "end"
            ):
                longest = max(longest, at - before[1])
                if before[0] == what == "token":
                    gaps.append(at - before[1])
                if what == "failed":
                    failures.append(why)
            if what != "end":
                before = what, at
        return gaps, longest, failures


@dataclass(slots=True)
class Probing:
    """A third key that asks for one thing again and again, in a thread, until `until`."""

    client: Client
    probe: Probe
    until: float
    waits_s: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    asked: float | None = None

    def run(self) -> None:
        while time.monotonic() < self.until:
            self.asked = time.monotonic()
            answer = self.client.ask(_probe(self.probe))
            self.waits_s.append(time.monotonic() - self.asked)
            self.asked = None
            if answer != "200":
                self.refused.append(answer)
            time.sleep(_PROBE_PAUSE_S)


def _probe(probe: Probe) -> Body:
    fresh = os.urandom(8).hex()
    match probe:
        case "first token":
            return Body.json("/run", {"controller": "none", "controller_arg": fresh, "max_tokens": 1})
        case "upload":
            return Body.wasm(renamed(guest("honest"), fresh))
        case "check":
            return Body.json("/check", {"guided_regex": f"{fresh}[a-z]+"})
        case "health":
            return Body(path="//health")


def watch(victim: Victim, other: Client, probe: Probe, seconds: float, patience_s: float) -> Window:
    """Measure for `seconds`, and at most `patience_s` longer if the victim or the third key waits at the end."""
    begin = time.monotonic()
    end = begin + seconds
    probing = Probing(other, probe, end)
    thread = threading.Thread(target=probing.run, daemon=True)
    thread.start()
    time.sleep(seconds)
    victim.wait_for_tokens(1, patience_s)
    thread.join(max(0.0, end + patience_s - time.monotonic()))
    waits = list(probing.waits_s)
    if thread.is_alive() and (asked := probing.asked) is not None:
        waits.append(time.monotonic() - asked)
        probing.refused.append("no answer")
    gaps, longest, failures = victim.between(begin, end)
    return Window(gaps_s=gaps, longest_s=longest, failures=failures, waits_s=waits, refused=list(probing.refused))


class AttackerProcess:
    """A context manager that runs `attacker.py`. The process and its connections have ended when the context ends."""

    def __init__(self, name: str, url: str, headers: Mapping[str, str], ends_after_s: float) -> None:
        plan: dict[str, Any] = {"attack": name, "url": url, "headers": dict(headers), "ends_after_s": ends_after_s}
        self._plan = json.dumps(plan)
        self.answers: list[str] = []
        self._ready = threading.Event()

    def __enter__(self) -> "AttackerProcess":
        command = [sys.executable, "-P", "-m", "aici_cli.bench.abuse.attacker"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self._tell(self._plan)
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()

    def ready(self, limit_s: float) -> str:
        """Wait until everything is prepared. Return why the attack cannot begin, or an empty text."""
        if not self._ready.wait(limit_s):
            return f"not prepared within {limit_s:g} s"
        if self.answers and self.answers[0] == "ready":
            del self.answers[0]
            return ""
        return self.answers[-1] if self.answers else "the attacker's process has ended"

    def begin(self) -> None:
        self._tell("go")

    def _tell(self, line: str) -> None:
        with suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.answers.append(line.strip())
            self._ready.set()
        if not self._ready.is_set():
            self.answers.extend((self._process.stderr.read() if self._process.stderr else "").split("\n")[-2:-1])
            self._ready.set()
