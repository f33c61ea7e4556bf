"""Run one target in a child for some time, and count the findings."""

import multiprocessing
import random
import tempfile
import time
from typing import Any

from tests.fuzz.targets import TARGETS, Finding, Target


def take(target: Target, data: bytes) -> None:
    """Give one input to a target. Raise what the target raises, or Finding if the input takes too long."""
    began = time.process_time()
    target.take(data)
    spent = time.process_time() - began
    if spent > target.most_s:
        raise Finding(f"{spent:.1f} s of processor time")


def input_of(target: Target, seed: int, number: int) -> bytes:
    rnd = random.Random(f"{seed}/{number}")
    return target.mutate(rnd.choice(target.seeds), rnd)


def _work(name: str, seed: int, first: int, until: float, at: Any, kinds: Any, folder: str) -> None:
    tempfile.tempdir = folder  # the files of a child that is killed go with this folder
    target = TARGETS[name]()
    number = first
    while time.monotonic() < until:
        at.value = number
        data = input_of(target, seed, number)
        try:
            take(target, data)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            kind = f"{type(error).__name__}: {str(error)[:200]}"
            if kind not in kinds:
                kinds.append(kind)
                print(f"FINDING {name} --seed {seed} --first {number}\n  {kind}\n  {data[:400]!r}", flush=True)
        number += 1


def fuzz(name: str, seed: int, first: int, seconds: float) -> int:
    """Return the number of findings, at most one of each kind."""
    with (
        tempfile.TemporaryDirectory(prefix="aici-fuzz-") as folder,
        multiprocessing.get_context("spawn").Manager() as manager,
    ):
        kinds = manager.list()
        at = multiprocessing.get_context("spawn").Value("q", first)
        until = time.monotonic() + seconds
        crashes = 0
        while time.monotonic() < until and crashes < 20:
            arguments = (name, seed, at.value, until, at, kinds, folder)
            child = multiprocessing.get_context("spawn").Process(target=_work, args=arguments)
            child.start()
            child.join(max(0.0, until - time.monotonic()) + 60)
            if child.is_alive():
                child.kill()
                child.join()
            if child.exitcode:
                crashes += 1
                print(f"FINDING {name} --seed {seed} --first {at.value}: exit code {child.exitcode}", flush=True)
                at.value += 1
        print(f"{name}: {at.value - first} inputs, {len(kinds) + crashes} findings", flush=True)
        return len(kinds) + crashes
