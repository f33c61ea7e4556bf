"""Some sequences of one runtime, taken through steps as an engine does, every answer checked."""

import itertools
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from aici_runtime.client import Runtime
from aici_runtime.errors import ControllerError
from aici_runtime.ids import SeqId, TokenId
from aici_runtime.wire import Mid, MidOp, PostOp, PreOp

_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds. `mid_s`: the round trip that the forward pass can hide. `step_s`: all that a step asks the runtime."""

    mid_s: float
    step_s: float


@dataclass(frozen=True, slots=True)
class Program:
    """A module and its argument, with the tokens that it lets the model say, again and again."""

    name: str
    module_id: str
    arg: str
    tokens: Sequence[TokenId]


class Fleet:
    """`size` sequences that run one program, and are all that the runtime has: it asks every live one in a step."""

    def __init__(self, runtime: Runtime, program: Program, size: int) -> None:
        self._runtime = runtime
        self._program = program
        self._steps = 0
        names = [f"bench-{next(_ids)}" for _ in range(size)]
        for started in [start(runtime, program, name) for name in names]:
            started.result()
        self.ids = [SeqId(next(_ids)) for _ in names]
        pre_ops = [PreOp(seq_id, name) for seq_id, name in zip(self.ids, names, strict=True)]
        runtime.post_pre_process(post_ops=[], pre_ops=pre_ops, freed=[])

    def step(self) -> StepTimes:
        """Each sequence gets its token, and computes the mask of the next one."""
        token = self._program.tokens[self._steps % len(self._program.tokens)]
        self._steps += 1
        started = time.perf_counter()
        self._runtime.post_pre_process(post_ops=[PostOp(seq_id, [token]) for seq_id in self.ids], pre_ops=[], freed=[])
        between = time.perf_counter()
        mid = self._mid([MidOp(seq_id) for seq_id in self.ids])
        ended = time.perf_counter()
        _check(mid)
        return StepTimes(ended - between, ended - started)

    def mid(self) -> float:
        """Seconds of a mid without a token before it."""
        started = time.perf_counter()
        mid = self._mid([MidOp(seq_id) for seq_id in self.ids])
        ended = time.perf_counter()
        _check(mid)
        return ended - started

    def fork(self) -> float:
        """Seconds of a mid in which the first sequence is forked. The fork is ended after it."""
        branch = SeqId(next(_ids))
        started = time.perf_counter()
        mid = self._mid([*(MidOp(seq_id) for seq_id in self.ids), MidOp(branch, self.ids[0])])
        ended = time.perf_counter()
        _check(mid)
        self._runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[branch])
        return ended - started

    def failing_mid(self) -> float:
        """Seconds until the runtime says that every sequence has failed."""
        started = time.perf_counter()
        mid = self._mid([MidOp(seq_id) for seq_id in self.ids])
        ended = time.perf_counter()
        if not all(result.error for result in mid.seqs.values()):
            raise ControllerError(f"the guest {self._program.name} did not fail: what was timed is something else")
        return ended - started

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runtime.post_pre_process(post_ops=[], pre_ops=[], freed=self.ids)

    def _mid(self, ops: Sequence[MidOp]) -> Mid:
        self._runtime.send_mid(ops)
        return self._runtime.recv_mid()


def start(runtime: Runtime, program: Program, name: str) -> Future[Any]:
    return runtime.instantiate(
        req_id=name, prompt=program.tokens[:1], module_id=program.module_id, module_arg=program.arg
    )


def _check(mid: Mid) -> None:
    for result in mid.seqs.values():
        # A guest that has ended is fast.
        if result.error or result.result is not None:
            raise ControllerError(f"a guest did not go on: {result.error or result.result}")
