"""Figures of a server on nodes that joined by Ray: `python -m tests.cluster.measure_nodes [WHAT...]`.

Machines are namespaces (tests/support/netns.py: needs root). Each WHAT is a failure while texts are generated:
`gcs`: the head's GCS stands still for 90 s. `raylet`: a node's Ray is killed. `driver`: the engine process is killed.
`head`: the head's machine loses power and starts again. `spare`: a node loses power, another takes its layers over.
`alone`: a node loses power, and nobody takes its layers over. Each figure depends on the load, which is printed.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import netns
from tests.support.clusters import PROMPT, ServedCluster, processes_in
from tests.support.faults import bytes_read
from tests.support.model import default_model_dir
from tests.support.processes import wait_until

_TOKENS = 200
_ALL = ("raylet", "gcs", "driver", "head", "spare", "alone")


@dataclass
class Stream:
    """A completion: `times` of its texts (`time.monotonic`), the text, and the error that ended the stream."""

    times: list[float] = field(default_factory=list)
    text: str = ""
    error: str = ""

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


def stream(url: str, into: Stream) -> Stream:
    body = {"model": default_model_dir().name, "prompt": PROMPT, "max_tokens": _TOKENS, "temperature": 0}
    data = json.dumps({**body, "stream": True}).encode()
    asked = urllib.request.Request(f"{url}/v1/completions", data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=300) as answer:
            for event in _events(answer):
                if "error" in event:
                    into.error = event["error"]["message"]
                elif event["choices"]:
                    into.times.append(time.monotonic())
                    into.text += event["choices"][0]["text"]
    except (OSError, urllib.error.HTTPError) as error:
        into.error = f"{type(error).__name__}: {error}"
    return into


def _events(answer: Iterator[bytes]) -> Iterator[dict]:
    for line in answer:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


class Measurement:
    def __init__(self, network: netns.Network, folder: Path) -> None:
        self.cluster = ServedCluster(network, folder)
        self.address = f"{self.cluster.head.address}:4243"
        self.serve()
        self.join("a", "700MiB")
        self.join("b", "600MiB")
        self.cluster.wait_ready()
        self.text = self.stream().text

    def serve(self) -> None:
        flags = ("--cluster-address", self.address, "--min-nodes", "2", "--memory", "550MiB")
        server = self.cluster.serve("--cluster", *flags)
        server.wait_for(lambda line: "aici node join" in line)

    def join(self, name: str, memory: str) -> None:
        self.cluster.join(name, self.address, memory=memory)

    def stream(self) -> Stream:
        return stream(self.cluster.url, Stream())

    def stages(self) -> dict[str, int]:
        return {name: processes_in(self.cluster.network.machines[name], " stage ")[0] for name in "ab"}

    def steady(self, what: str, seconds: float) -> None:
        """Print the times between tokens of texts one after the other."""
        deadline, gaps, texts = time.monotonic() + seconds, list[float](), set[str]()
        while time.monotonic() < deadline:
            got = self.stream()
            gaps += got.gaps
            texts.add(got.text + got.error)
        gaps.sort()
        p99 = gaps[int(0.99 * len(gaps))]
        say(
            f"{what}: {len(gaps)} tokens, between two: median {1000 * statistics.median(gaps):.1f} ms, "
            f"p99 {1000 * p99:.1f}, longest {1000 * gaps[-1]:.1f}; texts identical: {texts == {self.text}}"
        )

    def during(self, what: str, act: Callable[[], object]) -> Stream:
        """Let something happen in the middle of a text; print when the next token came."""
        got = Stream()
        thread = threading.Thread(target=stream, args=(self.cluster.url, got))
        thread.start()
        assert wait_until(lambda: len(got.times) >= _TOKENS // 4, 60), got
        act()
        happened = time.monotonic()
        thread.join()
        after = [moment for moment in got.times if moment > happened]
        heard = f"longest wait {max(got.gaps):.2f} s" if after and not got.error else "no token afterwards"
        ended = f", error after {time.monotonic() - happened:.1f} s: {got.error}" if got.error else ""
        say(f"{what}: {heard}; text identical: {got.text == self.text}{ended}")
        return got

    # What happens

    def raylet(self) -> None:
        stages = self.stages()
        (pid, *_) = processes_in(self.cluster.network.machines["b"], "raylet/raylet")
        self.during("raylet of b killed", lambda: os.kill(pid, signal.SIGKILL))
        say(f"   the stages' processes are the same: {self.stages() == stages}")

    def gcs(self) -> None:
        (gcs,) = processes_in(self.cluster.head, "gcs_server")
        self.steady("undisturbed, 90 s", 90)
        os.kill(gcs, signal.SIGSTOP)
        self.steady("GCS stands still, 90 s", 90)
        os.kill(gcs, signal.SIGCONT)
        self.steady("GCS goes on, 30 s", 30)

    def driver(self) -> None:
        for _ in range(3):
            stages = self.stages()
            before = {name: bytes_read(pid) for name, pid in stages.items()}
            (engine,) = processes_in(self.cluster.head, "engine_process.main")
            killed = time.monotonic()
            os.kill(engine, signal.SIGKILL)
            while (got := self.stream()).error:
                time.sleep(0.05)
            took = got.times[0] - killed
            read = {name: bytes_read(pid) - before[name] for name, pid in stages.items()}
            say(
                f"driver killed: the first token {took:.1f} s later; text identical: {got.text == self.text}; "
                f"stages the same: {self.stages() == stages}; they read {read} bytes; {self.attached()}"
            )

    def attached(self) -> str:
        server = self.cluster.server
        assert server is not None
        return " | ".join(line.strip() for line in server.said if "attach" in line or "complete" in line)[-300:]

    def head(self) -> None:
        stages = self.stages()
        before = {name: bytes_read(pid) for name, pid in stages.items()}
        self.cluster.head.crash()
        lost = time.monotonic()
        time.sleep(2)
        self.cluster.head.boot()
        booted = time.monotonic()
        self.serve()
        self.cluster.wait_ready()
        got = self.stream()
        read = {name: bytes_read(pid) - before[name] for name, pid in stages.items()}
        say(
            f"head's machine lost power and was back after {booted - lost:.1f} s: the first token "
            f"{got.times[0] - booted:.1f} s after that; text identical: {got.text == self.text}; "
            f"stages the same: {self.stages() == stages}; they read {read} bytes; {self.attached()}"
        )

    def spare(self) -> None:
        self.join("c", "700MiB")
        assert wait_until(lambda: any(node["name"] == "c" for node in self.cluster.state()["nodes"]), 60)
        time.sleep(5)
        before = len(self.cluster.server.said)
        self.during("node b lost, c takes over", self.cluster.network.machines["b"].crash)
        print("".join(self.cluster.server.said[before:]), file=sys.stderr)

    def alone(self) -> None:
        name = "c" if "c" in self.cluster.nodes else "b"
        self.during(f"node {name} lost, nobody takes over", self.cluster.network.machines[name].crash)


def say(line: str) -> None:
    print(f"[load {os.getloadavg()[0]:4.1f}] {line}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[*_ALL, []], default=[], metavar="WHAT")
    args = parser.parse_args()
    if reason := netns.missing():
        print(reason, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="aici-measure-") as name, netns.Network() as network:
        measurement = Measurement(network, Path(name))
        for what in args.what or _ALL:
            getattr(measurement, what)()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
