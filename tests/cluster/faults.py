"""Thousands of requests while stages are killed, unplugged, stalled and stopped: `python -m tests.cluster.faults`.

A server that holds the whole model first says what each request's text is. Then a pipeline of two stages, each in a
machine of its own, gets the same requests, some of which leave early, while one fault after the other happens. Every
request must end: with the same text, or with an error that names the lost stage. Afterwards nothing may be left:
requests, pages, guests, and at the stages descriptors, threads and memory. Needs root, like tests/support/netns.py.
"""

import argparse
import asyncio
import json
import math
import random
import re
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.engine.support import write_tiny_model
from tests.support import netns
from tests.support.faults import FAULTS, LOST, Holdings, asked_twice, holdings, named, settle
from tests.support.pipelines import KINDS, Outcome, Pipeline, ask, client, request

_DISTINCT = 100
_HUNG_S = 120.0
_TYPED = re.compile(r"stage|pipeline|machine")


@dataclass
class Happened:
    """One fault. Times are seconds since the fault; None: not noticed, or no text came."""

    name: str
    stage: int
    held_s: float = 0
    noticed_s: float | None = None
    recovered_s: float | None = None
    mended_s: float = 0


@dataclass
class Report:
    requests: int = 0
    same: int = 0
    left: int = 0
    typed: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    untyped: list[str] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    asked_twice: list[str] = field(default_factory=list)
    seconds: float = 0

    @property
    def is_good(self) -> bool:
        return not (self.wrong or self.hung or self.untyped or self.leaks or self.asked_twice)

    def table(self) -> str:
        lines = [f"{'fault':<12}{'count':>6}{'noticed p50':>13}{'p95':>8}{'next text p50':>15}{'p95':>8}  (seconds)"]
        for name in FAULTS:
            of_kind = [each for each in self.happened if each.name == name]
            noticed = [each.noticed_s for each in of_kind if each.noticed_s is not None]
            recovered = [each.recovered_s - each.mended_s for each in of_kind if each.recovered_s is not None]
            lines.append(f"{name:<12}{len(of_kind):>6}{_percentiles(noticed, 13)}{_percentiles(recovered, 15)}")
        lines += [
            "`next text`: from the repair (the new process listens, the cable is in) to the next text of any request",
            f"{self.requests} requests in {self.seconds:.0f} s: {self.same} with their text, {self.left} left early, "
            f"{sum(self.typed.values())} with a typed error, {len(self.wrong)} with another text, "
            f"{len(self.untyped)} with another error, {len(self.hung)} hung, {len(self.leaks)} leaks, "
            f"{len(self.asked_twice)} guests asked twice for a token",
        ]
        return "\n".join(lines)


def _percentiles(values: Sequence[float], width: int) -> str:
    if not values:
        return f"{'-':>{width}}{'-':>8}"
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"{statistics.median(ordered):>{width}.3f}{p95:>8.3f}"


class Trouble(threading.Thread):
    """Hurts one stage after the other until told to end."""

    def __init__(self, pipeline: Pipeline, kinds: Sequence[str], rng: random.Random, pause_s: float) -> None:
        super().__init__(daemon=True)
        self.pipeline, self.kinds, self.rng, self.pause_s = pipeline, kinds, rng, pause_s
        self.happened: list[tuple[float, Happened]] = []
        self.failure: BaseException | None = None
        self._end = threading.Event()

    def run(self) -> None:
        try:
            while not self._end.wait(self.rng.uniform(0.5, 1.5) * self.pause_s):
                self._one()
        except BaseException as failure:  # noqa: BLE001  # the main thread reports the failure
            self.failure = failure

    def end(self) -> None:
        self._end.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def _one(self) -> None:
        name, number = self.rng.choice(self.kinds), self.rng.randrange(len(self.pipeline.stages))
        fault, stage = FAULTS[name], self.pipeline.stages[number]
        one = Happened(name, number, held_s=self.rng.choice([0.1, 0.5, 2.0, 4.0]))
        began = time.monotonic()
        self.happened.append((began, one))
        fault.hurt(stage)
        time.sleep(one.held_s)
        fault.mend(stage)
        one.mended_s = time.monotonic() - began


async def _work(
    pipeline: Pipeline,
    todo: list[tuple[int, int | None]],
    bodies: list[dict[str, Any]],
    at_a_time: int,
    seconds: float = math.inf,
) -> list[tuple[int, Outcome]]:
    """Run requests, at most `at_a_time` at once; begin none after `seconds`."""
    done: list[tuple[int, Outcome]] = []
    deadline = time.monotonic() + seconds

    async def worker() -> None:
        async with client(pipeline.server.url, timeout_s=_HUNG_S) as http:
            while todo and time.monotonic() < deadline:
                number, leave_after = todo.pop()
                outcome = Outcome()
                done.append((number, outcome))
                if len(done) % 100 == 0:
                    print(f"{len(done)} requests begun", file=sys.stderr)
                try:
                    async with asyncio.timeout(_HUNG_S):
                        await ask(http, bodies[number], leave_after=leave_after, into=outcome)
                except TimeoutError:
                    outcome.errors.append("hung")

    await asyncio.gather(*(worker() for _ in range(at_a_time)))
    return done


def run(
    num_requests: int,
    seed: int,
    at_a_time: int,
    kinds: Sequence[str],
    pause_s: float,
    replay_timeout_s: float,
    seconds: float,
) -> Report:
    rng = random.Random(seed)
    bodies = [request(rng.choice(KINDS), number, rng.choice([20, 60, 150])) for number in range(_DISTINCT)]
    todo = [
        (rng.randrange(_DISTINCT), rng.randrange(1, 15) if rng.random() < 0.1 else None) for _ in range(num_requests)
    ]
    report = Report()
    with tempfile.TemporaryDirectory(prefix="aici-faults-") as name:
        folder = Path(name)
        model = write_tiny_model(folder / "model", context=2048, num_layers=6)
        (folder / "alone").mkdir()
        with netns.Network() as network:
            alone = Pipeline(network, model, folder / "alone", cuts=())
            expected = dict(asyncio.run(_work(alone, [(n, None) for n in range(_DISTINCT)], bodies, at_a_time)))
        assert all(outcome.errors == [] for outcome in expected.values()), expected
        with netns.Network() as network:
            timeout = ("--replay-timeout", str(replay_timeout_s))
            trace = {"AICI_TRACE": str(folder / "trace-%p.jsonl")}
            pipeline = Pipeline(network, model, folder, cuts=(2, 4), relayed=True, serve_args=timeout, env=trace)
            asyncio.run(_work(pipeline, [(n, None) for n in range(_DISTINCT)], bodies, at_a_time))  # caches fill
            before = _held(pipeline)
            trouble = Trouble(pipeline, kinds, rng, pause_s)
            began = time.monotonic()
            trouble.start()
            done = asyncio.run(_work(pipeline, todo, bodies, at_a_time, seconds))
            report.requests = len(done)
            report.seconds = time.monotonic() - began
            trouble.end()
            _judge(report, done, expected)
            _time(report, pipeline, trouble, done)
            _count_leaks(report, pipeline, before)
            report.asked_twice = asked_twice(folder.glob("trace-*"))
    return report


def _judge(report: Report, done: list[tuple[int, Outcome]], expected: dict[int, Outcome]) -> None:
    for number, outcome in done:
        text = f"request {number}: {outcome.errors} {outcome.texts} instead of {expected[number].texts}"
        if "hung" in outcome.errors:
            report.hung.append(text)
        elif outcome.errors:
            if all(_TYPED.search(error) for error in outcome.errors):
                report.typed[outcome.errors[0].splitlines()[0][:100]] += 1
            else:
                report.untyped.append(text)
        elif outcome.left:
            report.left += 1
            if not all(expected[number].texts.get(fork, "").startswith(said) for fork, said in outcome.texts.items()):
                report.wrong.append(text)
        elif not outcome.done:
            report.hung.append(text)
        elif outcome.said != expected[number].said:
            report.wrong.append(text)
        else:
            report.same += 1


def _time(report: Report, pipeline: Pipeline, trouble: Trouble, done: list[tuple[int, Outcome]]) -> None:
    texts = sorted(at for _, outcome in done for at in outcome.times)
    ends = [began for began, _ in trouble.happened[1:]] + [time.monotonic()]
    for (began, one), end in zip(trouble.happened, ends, strict=True):
        lost = pipeline.server.said.first(LOST, since=began)
        if lost is not None and lost[0] < end:
            one.noticed_s = lost[0] - began
            after = began + max(one.mended_s, one.noticed_s)
            one.recovered_s = next((at - began for at in texts if at > after), None)
        report.happened.append(one)


def _held(pipeline: Pipeline) -> dict[str, tuple[int, Holdings]]:
    settle(pipeline)
    pids = {f"stage {number}": stage.process.pid for number, stage in enumerate(pipeline.stages)}
    [pids["engine"]] = named(pipeline, "aici-engine")
    pids["api"] = pipeline.server.process.pid
    return {name: (pid, holdings(pid)) for name, pid in pids.items()}


def _count_leaks(report: Report, pipeline: Pipeline, before: dict[str, tuple[int, Holdings]]) -> None:
    report.leaks += [f"{name}: {value}" for name, value in settle(pipeline).items()]
    time.sleep(1)
    for name, (pid, now) in _held(pipeline).items():
        old_pid, then = before[name]
        grown = (now.resident_bytes - then.resident_bytes) >> 20
        print(f"{name}: {now}, {grown:+} MiB{'' if pid == old_pid else ' (another process)'}", file=sys.stderr)
        if now.fds > then.fds + 3 or now.threads > then.threads or (pid == old_pid and grown > 32):
            report.leaks.append(f"{name}: {then}, afterwards {now}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-a-time", type=int, default=12)
    parser.add_argument("--pause", type=float, default=4.0, help="mean seconds between two faults")
    parser.add_argument("--replay-timeout", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no request after this time")
    parser.add_argument("--faults", nargs="*", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument("--json", type=Path, help="write everything to this file")
    args = parser.parse_args()
    if reason := netns.missing():
        print(reason, file=sys.stderr)
        return 2
    numbers = args.requests, args.seed, args.at_a_time
    report = run(*numbers, args.faults, args.pause, args.replay_timeout, args.seconds)
    print(report.table())
    for problem in [*report.wrong[:5], *report.untyped[:5], *report.hung[:5], *report.leaks]:
        print(problem)
    for error, count in report.typed.most_common():
        print(f"{count} x {error}")
    if args.json is not None:
        args.json.write_text(json.dumps(asdict(report)))
    return 0 if report.is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())
