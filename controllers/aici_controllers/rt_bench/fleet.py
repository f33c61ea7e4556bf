"""Drive several sequences of one runtime through steps, as an engine does, and check every answer."""

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from aici_base.errors import ControllerError
from aici_base.ids import SeqId, TokenId
from aici_runtime.client import Runtime
from aici_runtime.wire import Mid, MidOp, PostOp, PreOp, SeqResult, Splice, StepOp, seq_results

_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """In seconds. `mid_s`: the round trip that a forward pass can hide. `step_s`: all calls of the runtime in a
    step."""

    mid_s: float
    step_s: float


@dataclass(frozen=True, slots=True)
class Program:
    """A module and its argument. `tokens`: tokens that the module allows, in an endless cycle."""

    name: str
    module_id: str
    arg: str
    tokens: Sequence[TokenId]


class Fleet(ABC):
    """`size` sequences that run one program: all sequences of the runtime, since some operations ask every live
    sequence."""

    def __init__(self, runtime: Runtime, program: Program, size: int) -> None:
        self._runtime = runtime
        self._program = program
        self._steps = 0
        names = [f"bench-{next(_ids)}" for _ in range(size)]
        for started in [start(runtime, program, name) for name in names]:
            started.result()
        self.ids = [SeqId(next(_ids)) for _ in names]
        self._bind(dict(zip(self.ids, names, strict=True)))

    @abstractmethod
    def _bind(self, names: Mapping[SeqId, str]) -> None: ...

    @abstractmethod
    def step(self) -> StepTimes:
        """Give every sequence its token and compute the next mask."""

    @abstractmethod
    def _free(self) -> None: ...

    def _next_token(self) -> TokenId:
        self._steps += 1
        return self._program.tokens[(self._steps - 1) % len(self._program.tokens)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an error an unread answer may remain, which would be mistaken for the next answer; the runtime ends soon
        # anyway.
        if kind is None:
            self._free()


class V2Fleet(Fleet):
    """Protocol v2: mid alone."""

    def _bind(self, names: Mapping[SeqId, str]) -> None:
        self._call([StepOp(seq_id, req_id=name) for seq_id, name in names.items()])

    def step(self) -> StepTimes:
        token = self._next_token()
        started = time.perf_counter()
        results = self._call([StepOp(seq_id, tokens=[token], sampled=token) for seq_id in self.ids])
        seconds = time.perf_counter() - started
        for result in results.values():
            if result.error or result.result is None or len(result.result) != 1:
                raise ControllerError(f"a guest did not continue: {result.error or result.result}")
        return StepTimes(seconds, seconds)

    def _call(self, ops: Sequence[StepOp], freed: Sequence[SeqId] = ()) -> Mapping[SeqId, SeqResult[Any]]:
        request = {"op": "mid_process", "ops": [op.to_json() for op in ops], "freed": list(freed)}
        return seq_results(self._runtime.call(request)["seqs"], lambda value: value["branches"])

    def _free(self) -> None:
        self._call([], self.ids)


class V1Fleet(Fleet):
    """Protocol v1: pre, mid and post."""

    def _bind(self, names: Mapping[SeqId, str]) -> None:
        pre_ops = [PreOp(seq_id, name) for seq_id, name in names.items()]
        self._runtime.post_pre_process(post_ops=[], pre_ops=pre_ops, freed=[])

    def step(self) -> StepTimes:
        token = self._next_token()
        started = time.perf_counter()
        self._runtime.post_pre_process(post_ops=[PostOp(seq_id, [token]) for seq_id in self.ids], pre_ops=[], freed=[])
        between = time.perf_counter()
        mid = self._mid([MidOp(seq_id) for seq_id in self.ids])
        ended = time.perf_counter()
        _check(mid.seqs)
        return StepTimes(ended - between, ended - started)

    def mid(self) -> float:
        """Return the seconds of a mid without a preceding token."""
        started = time.perf_counter()
        mid = self._mid([MidOp(seq_id) for seq_id in self.ids])
        ended = time.perf_counter()
        _check(mid.seqs)
        return ended - started

    def fork(self) -> float:
        """Return the seconds of a mid that forks the first sequence. The fork is freed afterwards."""
        branch = SeqId(next(_ids))
        started = time.perf_counter()
        mid = self._mid([*(MidOp(seq_id) for seq_id in self.ids), MidOp(branch, self.ids[0])])
        ended = time.perf_counter()
        _check(mid.seqs)
        self._runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[branch])
        return ended - started

    def failing_mid(self) -> float:
        """Return the seconds until the runtime reports all sequences as failed."""
        started = time.perf_counter()
        mid = self._mid([MidOp(seq_id) for seq_id in self.ids])
        ended = time.perf_counter()
        if not all(result.error for result in mid.seqs.values()):
            raise ControllerError(f"the guest {self._program.name} did not fail: what was timed is something else")
        return ended - started

    def _free(self) -> None:
        self._runtime.post_pre_process(post_ops=[], pre_ops=[], freed=self.ids)

    def _mid(self, ops: Sequence[MidOp]) -> Mid:
        self._runtime.send_mid(ops)
        return self._runtime.recv_mid()


class TurnFleet(V1Fleet):
    """`turn_process`: post, pre and mid of all sequences in one message."""

    def step(self) -> StepTimes:
        token = self._next_token()
        started = time.perf_counter()
        self._runtime.send_calm(self.ids, [token] * len(self.ids), None)
        turn = self._runtime.recv_turn() if self._runtime.recv_calm() is None else None
        seconds = time.perf_counter() - started
        if turn is not None:
            if turn.pre or turn.mid.keys() != set(self.ids):
                raise ControllerError(f"a guest did more than to go on: {turn.pre}")
            _check(turn.mid)
        return StepTimes(seconds, seconds)


def start(runtime: Runtime, program: Program, name: str) -> Future[Any]:
    return runtime.instantiate(
        req_id=name, prompt=program.tokens[:1], module_id=program.module_id, module_arg=program.arg
    )


def _check(seqs: Mapping[SeqId, SeqResult[Splice]]) -> None:
    for result in seqs.values():
        # A guest that has ended would look fast.
        if result.error or result.result is not None:
            raise ControllerError(f"a guest did not continue: {result.error or result.result}")
