"""Drives a program in the real runtime as an engine does: every step gives a token or a splice to some of the forks.

A fork that is left out of a step is asked again in the pre-process of the next step, as when memory or the batch is
full.
"""

import itertools
import random
from dataclasses import dataclass, field
from typing import Any, Literal

from aici_base.errors import ControllerError
from aici_base.ids import SeqId, TokenId
from aici_runtime.client import Runtime
from aici_runtime.wire import MidOp, PostOp, PreOp, SeqResult
from tests.support.scripts import model
from tests.support.scripts.nodes import Outcome, Result

_MAX_STEPS = 400
_MAX_SUSPENDED_ROUNDS = 20
"""More than a random program pauses in a row."""
_ids = itertools.count(1)


@dataclass
class _Fork:
    seq_id: SeqId
    path: tuple[int, ...]
    tokens: list[int]
    posts: list[PostOp] = field(default_factory=list)
    num_forks: int = 1
    suspended: bool = False
    log: str = ""
    error: str = ""
    end: Literal["stop", "fail", "deadlock"] | None = None


class ScriptEngine:
    """Runs one request at a time."""

    def __init__(self, runtime: Runtime, module_id: str) -> None:
        self._runtime = runtime
        self._module_id = module_id

    def run(self, argument: str, seed: int) -> tuple[Outcome, list[str]]:
        """Return the outcome, and the messages of forks that failed. `seed` decides which forks are left out of a
        step."""
        prompt = model.tokenize(model.PROMPT)
        req_id = f"script-{next(_ids)}"
        ready = self._runtime.instantiate(
            req_id=req_id, prompt=[TokenId(t) for t in prompt], module_id=self._module_id, module_arg=argument
        )
        try:
            ready.result()
        except ControllerError as error:
            log = error.message.removeprefix("Error (setup): ")
            failed = _Fork(SeqId(0), (), prompt, log=log, end="fail")
            return Outcome([_result(failed)], None), [error.message]
        request = _Request(self._runtime, req_id, prompt)
        try:
            request.run(random.Random(seed))
        finally:
            request.free()
        forks = sorted(request.forks, key=lambda fork: fork.path)
        return Outcome([_result(fork) for fork in forks], request.variables), [
            fork.error for fork in forks if fork.error
        ]


def _result(fork: "_Fork") -> Result:
    assert fork.end is not None
    if fork.end != "fail":
        return Result(fork.path, model.decode(fork.tokens), fork.log, fork.end)
    # A fork that failed may not have logged the text that was forced before.
    told = [
        line for line in fork.log.splitlines(keepends=True) if line.startswith(("FIXED ", "GEN ", "BACKTRACK ", "LOG "))
    ]
    return Result(fork.path, b"", "".join(told), fork.end)


class _Request:
    def __init__(self, runtime: Runtime, req_id: str, prompt: list[int]) -> None:
        self._runtime = runtime
        self._fresh = [req_id]
        self.forks = [_Fork(SeqId(next(_ids)), (), prompt)]
        self.variables: dict[str, str] = {}

    def run(self, chance: random.Random) -> None:
        rounds_suspended = 0
        for _ in range(_MAX_STEPS):
            self._round()
            live = [fork for fork in self.forks if fork.end is None]
            if not live:
                return
            running = [fork for fork in live if not fork.suspended]
            rounds_suspended = 0 if running else rounds_suspended + 1
            if rounds_suspended > _MAX_SUSPENDED_ROUNDS:
                for fork in live:
                    fork.end = "deadlock"
                return
            chosen = [fork for fork in running if chance.random() < 0.7]
            if chosen:
                self._step(chosen)
        raise AssertionError("the program does not end")

    def free(self) -> None:
        self._runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[fork.seq_id for fork in self.forks])

    def _round(self) -> None:
        live = [fork for fork in self.forks if fork.end is None]
        posts = [op for fork in live for op in fork.posts]
        fresh = [PreOp(live[0].seq_id, self._fresh.pop())] if self._fresh else []
        told = self._runtime.post_pre_process(post_ops=posts, pre_ops=fresh, freed=[])
        for fork in live:
            post = told.post.get(fork.seq_id) if fork.posts else None
            fork.posts.clear()
            if post is not None and self._noted(fork, post) and post.result is not None and post.result.stop:
                fork.end = "stop"
            pre = told.pre[fork.seq_id]
            if not self._noted(fork, pre) or fork.end is not None or pre.result is None:
                continue
            fork.tokens += pre.result.ff_tokens
            fork.suspended, fork.num_forks = pre.result.suspend, pre.result.num_forks
            if fork.num_forks == 0:
                fork.end = "stop"

    def _step(self, running: list[_Fork]) -> None:
        asked: list[_Fork] = []
        ops: list[MidOp] = []
        for fork in running:
            asked.append(fork)
            ops.append(MidOp(fork.seq_id))
            path, num_forks, fork.num_forks = fork.path, fork.num_forks, 1
            if num_forks == 1:
                continue
            fork.path = (*path, 0)
            for number in range(1, num_forks):
                child = _Fork(SeqId(next(_ids)), (*path, number), list(fork.tokens))
                asked.append(child)
                self.forks.append(child)
                ops.append(MidOp(child.seq_id, fork.seq_id))
        self._runtime.send_mid(ops)
        answers = self._runtime.recv_mid()
        rows = self._runtime.mask_rows(len(ops)).tolist()
        for fork, row in zip(asked, rows, strict=True):
            result = answers.seqs[fork.seq_id]
            if not self._noted(fork, result):
                continue
            if (splice := result.result) is None:
                allowed = [token for token in range(8 * len(row)) if row[token // 8] >> token % 8 & 1]
                assert max(allowed) < len(model.TOKENS)
                fork.tokens.append(model.greedy(fork.tokens, allowed))
                fork.posts.append(PostOp(fork.seq_id, [TokenId(fork.tokens[-1])]))
            else:
                backtrack = max(0, splice.backtrack - 1)
                assert backtrack <= len(fork.tokens)
                del fork.tokens[len(fork.tokens) - backtrack :]
                fork.tokens += splice.ff_tokens
                assert fork.tokens
                fork.posts.append(PostOp(fork.seq_id, list(splice.ff_tokens), splice.backtrack))

    def _noted(self, fork: _Fork, result: SeqResult[Any]) -> bool:
        fork.log += result.logs.removesuffix(result.error)
        for command in result.storage:
            write = command["WriteVar"]
            before = self.variables.get(write["name"], "") if write["op"] == "Append" else ""
            self.variables[write["name"]] = before + bytes.fromhex(write["value"]).decode()
        if result.error and fork.end is None:
            fork.end, fork.error = "fail", result.error
        return not result.error
