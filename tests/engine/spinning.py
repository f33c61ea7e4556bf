"""How much hostile guests slow a victim: `python -m tests.engine.spinning`. No test: times need a quiet machine.

The victim is a plain stream of one owner; every hostile sequence has an owner of its own, who asks again whenever a
request has ended. Each scenario runs between two runs of the victim alone, so ratios are of one run.
"""

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import Event, FinishEvent, TokenEvent
from aici_engine.request import ControllerCall, Request, RequestHandle, Share
from aici_runtime.client import Runtime
from aici_runtime.config import RuntimeConfig, patient
from tests.runtime.support import wat
from tests.support.model import default_model_dir

_TURNS_PER_MS = 1_200_000


def busy(ms: int) -> str:
    """Return code that computes for about so many milliseconds."""
    return f"""(global.set $n (i64.const {ms * _TURNS_PER_MS})) (loop $again
      (global.set $n (i64.sub (global.get $n) (i64.const 1))) (br_if $again (i64.ne (global.get $n) (i64.const 0))))"""


def guests() -> dict[str, Callable[[], bytes]]:
    counter = "(global $n (mut i64) (i64.const 0))"
    allow = "(call $allow (i32.const -1))"

    def in_mid(code: str) -> Callable[[], bytes]:
        def build() -> bytes:
            module = wat.Module()
            return module.build(mid=code + allow + module.answer(wat.SAMPLE), extra=counter)

        return build

    def in_pre(code: str) -> Callable[[], bytes]:
        def build() -> bytes:
            module = wat.Module()
            mid = allow + module.answer(wat.SAMPLE)
            return module.build(pre=code + module.answer(wat.PRE_GO), mid=mid, extra=counter)

        return build

    return {
        "honest": in_mid(""),
        "loop in mid": in_mid(wat.SPIN),
        "loop in pre": in_pre(wat.SPIN),
        "loop in init": lambda: wat.Module().build(prompt=wat.SPIN),
        "90 ms in mid": in_mid(busy(90)),
        "40 ms in pre": in_pre(busy(40)),
        "10 ms in mid": in_mid(busy(10)),
    }


class Attack:
    """`number` hostile owners, each with a request at a time."""

    def __init__(self, engine: Engine, module_id: str, number: int, name: str) -> None:
        self._engine, self._module_id, self._name = engine, module_id, name
        self._ended = False
        self._handles: dict[int, RequestHandle] = {}
        self.num_tokens = 0
        for owner in range(number):
            self._again(owner)

    def _again(self, owner: int) -> None:
        if self._ended:
            return

        def sink(event: Event) -> None:
            self.num_tokens += isinstance(event, TokenEvent)
            if isinstance(event, FinishEvent):
                threading.Timer(0.01, self._again, [owner]).start()

        request = Request(
            prompt="Once",
            sampling=SamplingParams(max_tokens=1000),
            controller=ControllerCall(self._module_id, ""),
            share=Share(owner=f"{self._name} {owner}"),
        )
        self._handles[owner] = self._engine.submit(request, sink=sink)

    def end(self) -> None:
        self._ended = True
        time.sleep(0.05)
        for handle in self._handles.values():
            handle.abort()


def gaps(engine: Engine, num_tokens: int) -> list[float]:
    """Return the milliseconds between the tokens of the victim."""
    times: list[float] = []
    done = threading.Event()

    def sink(event: Event) -> None:
        if isinstance(event, TokenEvent):
            times.append(time.monotonic())
        if isinstance(event, FinishEvent):
            done.set()

    sampling = SamplingParams(max_tokens=num_tokens, temperature=0.0, ignore_eos=True)
    engine.submit(Request(prompt="The capital of France", sampling=sampling, share=Share(owner="victim")), sink=sink)
    done.wait()
    return [1000 * (b - a) for a, b in itertools.pairwise(times)]


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--only", default="")
    parser.add_argument("--numbers", type=int, nargs="*", default=[1, 8])
    options = parser.parse_args()
    folder = default_model_dir()
    config = patient(RuntimeConfig(tokenizer=Path(folder)))
    with Runtime(config) as runtime:
        runtime.wait_ready()
        ids = {name: runtime.mk_module(build()).module_id for name, build in guests().items()}
        with Engine(EngineConfig(model_dir=folder, max_num_seqs=32), runtime=runtime) as engine:
            gaps(engine, 50)
            print(f"{'':16}{'p50 ms':>10}{'p99':>8}{'max':>8}   times: p50, p99, mean  tokens/s of the others")
            for name, module_id in ids.items():
                for number in options.numbers:
                    if options.only in name:
                        measure(engine, name, module_id, number, options.tokens)


def measure(engine: Engine, name: str, module_id: str, number: int, num_tokens: int) -> None:
    alone = gaps(engine, num_tokens // 2)
    attack = Attack(engine, module_id, number, name)
    began = time.monotonic()
    hit = gaps(engine, num_tokens)
    took, others = time.monotonic() - began, attack.num_tokens
    attack.end()
    while engine.get_stats()["active_requests"] or engine.get_stats()["waiting_requests"]:
        time.sleep(0.05)
    alone += gaps(engine, num_tokens // 2)
    ratios = [quantile(hit, part) / quantile(alone, part) for part in (0.5, 0.99)]
    ratios.append(statistics.mean(hit) / statistics.mean(alone))
    print(
        f"{f'{number} {name}':16}{quantile(hit, 0.5):10.1f}{quantile(hit, 0.99):8.1f}{max(hit):8.1f}   "
        + " ".join(f"{ratio:6.2f}" for ratio in ratios)
        + f"{others / took:10.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
