"""Walk the text once in a child process before anything is timed.

An engine may need minutes or all memory for a case, and a child process can be killed. The walk also finds the tokens
allowed by the engine and the memory used.
"""

import contextlib
import ctypes
import json
import os
import signal
import time
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from aici_controllers.mask_bench.cases import MaskCase
from aici_controllers.mask_bench.engine import CannotError, MaskEngine, allows
from aici_controllers.mask_bench.vocabulary import BenchVocabulary

MEMORY_MAX_BYTES = 6 << 30
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """`problem`: why nothing was measured, or empty. `num_tokens`: tokens of the text up to the first refused token."""

    problem: str = ""
    seconds: float = 0.0
    memory_bytes: int = 0
    num_tokens: int = 0
    may_end: bool = False
    accepted: list[str] = field(default_factory=list)
    """The counter-examples accepted by the engine."""


def probe(engine: MaskEngine, case: MaskCase, vocabulary: BenchVocabulary, *, limit_s: float) -> Findings:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        _in_child(engine, case, vocabulary, write_end)
    os.close(write_end)
    with open(read_end, "rb", buffering=0) as pipe:
        return _watch(pid, pipe, limit_s)


def _in_child(engine: MaskEngine, case: MaskCase, vocabulary: BenchVocabulary, fd: int) -> None:
    # Never return into the copy of the parent, whatever happens.
    with contextlib.suppress(BaseException):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            findings = _look(engine, case, vocabulary)
        except Exception as error:  # noqa: BLE001 a peer may raise anything
            findings = {"problem": str(error) or repr(error)}
        os.write(fd, json.dumps(findings).encode()[:60_000])
    os._exit(0)


def _look(engine: MaskEngine, case: MaskCase, vocabulary: BenchVocabulary) -> dict[str, Any]:
    ctypes.CDLL(None).malloc_trim(0)
    before = _anonymous_bytes(os.getpid())
    started = time.perf_counter()
    session = engine.start(case)
    tokens = vocabulary.encode(case.text)
    num_tokens = 0
    session.mask()
    while num_tokens < len(tokens) and allows(session, tokens[num_tokens]):
        session.consume(tokens[num_tokens])
        num_tokens += 1
        session.mask()
    seconds = time.perf_counter() - started
    own = session.memory_bytes()
    return {
        "seconds": seconds,
        "memory_bytes": _anonymous_bytes(os.getpid()) - before if own is None else own,
        "num_tokens": num_tokens,
        "may_end": num_tokens == len(tokens) and allows(session, vocabulary.eos_token),
        "accepted": [bad for bad in case.bad if _accepts(engine, case, vocabulary.encode(bad))],
    }


def _accepts(engine: MaskEngine, case: MaskCase, tokens: list[int]) -> bool:
    session = engine.start(case)
    for token in tokens:
        session.mask()
        if not allows(session, token):
            return False
        session.consume(token)
    session.mask()
    return any(session.bits())


def _watch(pid: int, pipe: Any, limit_s: float) -> Findings:
    deadline = time.monotonic() + limit_s
    problem = ""
    while not wait([pipe], _POLL_S):
        if time.monotonic() > deadline:
            problem = f"more than {limit_s:.0f} s"
        elif _anonymous_bytes(pid) > MEMORY_MAX_BYTES:
            problem = f"more than {MEMORY_MAX_BYTES >> 30} GiB"
        if problem:
            os.kill(pid, signal.SIGKILL)
            break
    content = pipe.read()
    _, status = os.waitpid(pid, 0)
    if problem or not content:
        return Findings(problem=problem or f"ended by signal {os.WTERMSIG(status)}")
    return Findings(**json.loads(content))


def _anonymous_bytes(pid: int) -> int:
    """Return the pages written by the process, including pages shared with its parent: growth means allocation."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon")), 0)


def can_start(engine: MaskEngine, case: MaskCase) -> str:
    """Return why the engine cannot do the case, without starting the engine; empty if the engine may be able to."""
    prepare = getattr(engine, "prepare", None)
    try:
        if prepare is not None:
            prepare(case)
    except CannotError as error:
        return str(error)
    return ""
