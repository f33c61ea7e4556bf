"""Run an engine in a process of its own, and answer the requests of `aici bench engine`.

    PYTHON protocol.py PEER.py

runs under the Python that the engine is installed in, and needs only the standard library. Requests arrive on stdin,
one JSON object a line: {"op", "job"}. Every request has one reply, a line of JSON on stdout:

    version   {"version"}
    prepare   {}                    after the peer has written its own form of the model
    load      {"load_s"}
    run       {"tokens", "times"}   of every sequence; job: "prompts" of equal length and "num_new"

A reply {"error"} ends the measurement of the engine. A peer is a Python file that imports the engine only inside
functions. The file defines:

    NAME       the name in tables and for --peer
    PACKAGES   distributions that provide the engine; the first one that is installed gives the version
    FORMS      names of the weight formats that are measured by default
    Engine     a class: Engine(job) loads the model; run(prompts, num_new, out) decodes greedily and calls
               out.add(sequence, tokens), or out.step(one token of every sequence), as soon as tokens exist
    make_input(job)   optional; called once in aici's own process, to convert the model
    prepare(job)      optional; called once, to write job["made"]

A job has "model", the model folder; "form", the weight format; "work", a folder for converted models; "made", the path
of the engine's own form of the model; "device" and "threads"; "batch" and "length", the largest number of sequences and
of tokens per sequence.
"""

import importlib.util
import json
import os
import sys
import time
import traceback
from importlib.metadata import PackageNotFoundError, version
from typing import Any


class Output:
    """The tokens of every sequence, and the time of every token in seconds since the start of the run."""

    def __init__(self, num_sequences: int) -> None:
        self.tokens: list[list[int]] = [[] for _ in range(num_sequences)]
        self.times: list[list[float]] = [[] for _ in range(num_sequences)]
        self._start = time.perf_counter()

    def step(self, tokens: list[int]) -> None:
        """Add one token to every sequence."""
        for number, token in enumerate(tokens):
            self.add(number, [token])

    def add(self, number: int, tokens: list[int]) -> None:
        """Add tokens to sequence `number`, with the current time."""
        self.times[number] += [time.perf_counter() - self._start] * len(tokens)
        self.tokens[number] += tokens


def load_peer(path: str) -> Any:
    """Import the peer file `path`."""
    spec = importlib.util.spec_from_file_location("aici_bench_peer", path)
    assert spec is not None
    assert spec.loader is not None
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    return peer


def serve(peer: Any) -> None:
    """Answer requests until stdin ends. Everything else that the process prints goes to stderr."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engines: list[Any] = []
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = _reply(peer, engines, request["op"], request["job"])
        except PackageNotFoundError:
            reply = {"error": f"not installed in {sys.executable}"}
        except Exception as error:  # noqa: BLE001  engines raise any type
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


def _reply(peer: Any, engines: list[Any], op: str, job: dict[str, Any]) -> dict[str, Any]:
    if op == "version":
        return {"version": _version(peer.PACKAGES)}
    if op == "prepare":
        if hasattr(peer, "prepare"):
            peer.prepare(job)
        return {}
    if op == "load":
        start = time.perf_counter()
        engines.append(peer.Engine(job))
        return {"load_s": time.perf_counter() - start}
    out = Output(len(job["prompts"]))
    engines[0].run(job["prompts"], job["num_new"], out)
    return {"tokens": out.tokens, "times": out.times}


def _version(packages: tuple[str, ...]) -> str:
    for package in packages[:-1]:
        try:
            return version(package)
        except PackageNotFoundError:
            pass
    return version(packages[-1])


if __name__ == "__main__":
    # Python puts the folder of this file first: modules in the folder must not hide modules of the engine.
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]
    serve(load_peer(sys.argv[1]))
