"""Record every message of a request to the engine, to compare two runtimes: `python -m tests.support.transcripts -n
1000`.

A transcript has every result, mask, log and variable, without the microseconds, which differ between two equal runs.
A seed and the masks decide the sampled tokens, the choice of forks and the number of steps.
"""

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aici_base.errors import ControllerError
from aici_base.ids import SeqId, TokenId
from aici_controllers.catalog import guest_names, guest_path
from aici_runtime.client import Runtime, RuntimeConfig
from aici_runtime.wire import MidOp, PostOp, PreOp, SeqResult
from tests.runtime.support import tokenizer

_GUESTS = Path(__file__).resolve().parents[2] / "controllers" / "guests"
_FIELDS = {"regex": "pattern", "json_schema": "schema", "grammar": "grammar"}
_ELSEWHERE = {
    "choices": ['["yes","no","not yet"]', '["a","ab","abc"]'],
    "substring": ["the quick brown fox", "a b a c"],
}
_MAX_STEPS = 6
_MAX_FORKS = 6


@dataclass(frozen=True, slots=True)
class Program:
    guest: str
    argument: object


def programs() -> list[Program]:
    """Return the shipped guests with the arguments of their tables of cases."""
    found = []
    for guest in guest_names():
        if guest in _ELSEWHERE:
            found += [Program(guest, argument) for argument in _ELSEWHERE[guest]]
            continue
        cases = tomllib.loads((_GUESTS / guest / "cases.toml").read_text())["case"]
        found += [Program(guest, case[_FIELDS.get(guest, "argument")]) for case in cases if "error" not in case]
    return [Program(one.guest, _wrapped(one)) for one in found if not _has_talking_forks(one.argument)]


def _has_talking_forks(argument: object) -> bool:
    """Whether several forks write variables: the order of the writes is undefined."""
    text = json.dumps(argument).lower()
    return "fork" in text and "var" in text


def _wrapped(program: Program) -> object:
    if program.guest == "json_schema" and isinstance(program.argument, str):
        return {"schema": json.loads(program.argument)}
    return program.argument


@dataclass(frozen=True, slots=True)
class Request:
    program: Program
    prompt: Sequence[int]
    seed: int


def requests(count: int, seed: int, vocab_size: int) -> Iterator[Request]:
    """Yield `count` requests over few programs at a time, about five requests to a program."""
    chance = random.Random(seed)
    known = programs()
    chance.shuffle(known)
    known = known[: max(1, count // 5)]
    for number in range(count):
        first = number * len(known) // count
        program = known[(first + min(chance.randrange(6), chance.randrange(6))) % len(known)]
        prompt = [chance.randrange(vocab_size) for _ in range(chance.choice([0, 1, 3, 40]))]
        yield Request(program, prompt, chance.randrange(2**32))


class Listener:
    """Records one runtime; sequences get the same ids in every runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self.pid = runtime.pid
        self._runtime = runtime
        self._ids = itertools.count(1)
        self._modules = {guest: runtime.mk_module(guest_path(guest).read_bytes()).module_id for guest in guest_names()}

    def transcript(self, request: Request) -> list[object]:
        first = SeqId(next(self._ids))
        req_id = f"request-{first}"
        started = self._runtime.instantiate(
            req_id=req_id,
            prompt=[TokenId(token) for token in request.prompt],
            module_id=self._modules[request.program.guest],
            module_arg=request.program.argument,
        )
        try:
            started.result()
        except ControllerError as error:
            return [error.message]
        heard: list[object] = []
        seqs = [first]
        try:
            self._run(req_id, seqs, random.Random(request.seed), heard)
        finally:
            self._runtime.post_pre_process(post_ops=[], pre_ops=[], freed=seqs)
        return heard

    def _run(self, req_id: str, seqs: list[SeqId], chance: random.Random, heard: list[object]) -> None:
        fresh, posts, live = [PreOp(seqs[0], req_id)], list[PostOp](), set(seqs)
        for _ in range(_MAX_STEPS):
            told = self._runtime.post_pre_process(post_ops=posts, pre_ops=fresh, freed=[])
            heard += [_timeless(told.post), _timeless(told.pre)]
            fresh = []
            live -= {seq_id for seq_id, post in told.post.items() if post.result is None or post.result.stop}
            ops: list[MidOp] = []
            for seq_id in [one for one in seqs if one in live]:
                pre = told.pre[seq_id].result
                if pre is None or told.pre[seq_id].error or pre.num_forks == 0:
                    live.discard(seq_id)
                elif not pre.suspend:
                    ops.append(MidOp(seq_id))
                    for _ in range(pre.num_forks - 1 if len(seqs) + pre.num_forks <= _MAX_FORKS else 0):
                        seqs.append(SeqId(next(self._ids)))
                        live.add(seqs[-1])
                        ops.append(MidOp(seqs[-1], seq_id))
            if not ops:
                if not live:
                    return
                posts = []
                continue
            self._runtime.send_mid(ops)
            mid = self._runtime.recv_mid()
            rows = [bytes(row) for row in self._runtime.mask_rows(len(ops)).tolist()]
            heard += [_timeless(mid.seqs), rows]
            posts = [
                post for op, row in zip(ops, rows, strict=True) if (post := _next(op.id, mid.seqs[op.id], row, chance))
            ]
            live -= {op.id for op in ops} - {post.id for post in posts}


def _next(seq_id: SeqId, entry: SeqResult[Any], row: bytes, chance: random.Random) -> PostOp | None:
    """Return the tokens to append; None if the sequence ends here."""
    if entry.error:
        return None
    if entry.result is not None:
        return PostOp(seq_id, entry.result.ff_tokens, entry.result.backtrack)
    allowed = [number for number in range(8 * len(row)) if row[number >> 3] >> (number & 7) & 1]
    return PostOp(seq_id, [TokenId(chance.choice(allowed))]) if allowed else None


def _timeless(results: Mapping[SeqId, SeqResult[Any]]) -> dict[SeqId, SeqResult[Any]]:
    return {seq_id: entry._replace(micros=0) for seq_id, entry in results.items()}


@contextmanager
def listeners(folder: Path, model: Path) -> Iterator[list[Listener]]:
    """Yield a runtime without templates, a runtime with templates, and a runtime with pools and images. Time limits are
    wide: a busy machine must make no difference."""

    def start(*flags: str) -> Runtime:
        config = RuntimeConfig(
            tokenizer=model, cache_dir=folder, max_pre_step_time_ms=10_000, max_step_time_ms=10_000, extra_args=flags
        )
        return Runtime(config)

    with start("--templates=0") as afresh, start("--templates=4") as forked, start("--placement=pool") as pooled:
        runtimes = (afresh, forked, pooled)
        for runtime in runtimes:
            runtime.wait_ready()
        yield [Listener(runtime) for runtime in runtimes]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", type=Path, help="a folder with a tokenizer.json (default: bytes and three merges)")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = flags.model or tokenizer.byte_level(folder)
        num_entries = num_failed = 0
        seconds = dict.fromkeys(("afresh", "forked", "pooled"), 0.0)
        with listeners(folder, model) as all_:
            for number, request in enumerate(requests(flags.n, flags.seed, tokenizer.BYTE_LEVEL_SIZE)):
                heard = []
                for way, listener in zip(seconds, all_, strict=True):
                    started = time.monotonic()
                    heard.append(listener.transcript(request))
                    seconds[way] += time.monotonic() - started
                if not heard[0] == heard[1] == heard[2]:
                    sys.stdout.write(f"request {number} differs: {request}\n" + "\n".join(map(str, heard)))
                    return 1
                num_entries += len(heard[0])
                num_failed += len(heard[0]) == 1
    sys.stdout.write(
        f"{flags.n} requests, {num_failed} of which did not come up: the same {num_entries} answers, in seconds:"
        f" {', '.join(f'{name} {value:.0f}' for name, value in seconds.items())}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
