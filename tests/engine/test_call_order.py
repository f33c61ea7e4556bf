"""The order of a step's calls to the parts of the engine, in a recorded run of plain, controlled, forked and preempted
sequences.

The recording stands in `call_order.txt`. Set `AICI_RECORD_CALLS=1` to write the file anew, and read the difference.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aici_engine.config import SamplingParams
from aici_engine.events import Event, FinishEvent, ForkEvent, TokenEvent
from aici_engine.request import ControllerCall
from aici_engine.sample.sampler import RowToSample
from aici_engine.sequences.sequence import Sequence as EngineSequence
from aici_engine.step_input import Chunk, StepInput
from aici_engine.step_plan import StepPlan
from tests.engine.loop_bench import LoopBench, ReadyRuntime, host_sampler
from tests.engine.null_executor import NullExecutor
from tests.engine.programs import Program
from tests.engine.support import encode

RECORDING = Path(__file__).with_name("call_order.txt")
RECORDED = {
    "executor": {"begin"},
    "session": {"start", "drop", "round", "ask", "answers", "sampled", "splice"},
    "runtime": {"instantiate", "discard", "send_turn", "recv_turn", "send_calm", "recv_calm", "mask_rows"},
    "scheduler": {"add", "remove", "admit", "fork", "decide", "record_time"},
    "cache": {"add", "extend", "reserve", "advance", "truncate", "fork", "free"},
    "sampler": {"score", "sample_batch"},
    "output": {"accepted", "forked", "sampled", "sampled_eos", "forced", "scored", "remove", "finish", "flush"},
}
_NOT_ORDER = ("is_choice", "patience")
"""How long a turn waits is a question of times."""


class Recorder:
    """Pass every call on to `part`, and note the methods of `RECORDED` in `calls`."""

    def __init__(self, name: str, part: Any, calls: list[str]) -> None:
        self._name, self._part, self._calls = name, part, calls

    def __getattr__(self, method: str) -> Any:
        value = getattr(self._part, method)
        if method not in RECORDED[self._name]:
            return value

        def call(*args: Any, **named: Any) -> Any:
            words = [shown(arg) for arg in args]
            words += [f"{key}={shown(arg)}" for key, arg in named.items() if key not in _NOT_ORDER]
            self._calls.append(f"{self._name}.{method} " + " ".join(word for word in words if word))
            return value(*args, **named)

        return call


def shown(value: Any) -> str:
    """Return a short name of an argument; nothing for a callback, a time or a tensor."""
    if isinstance(value, EngineSequence):
        return f"s{value.seq_id}"
    if isinstance(value, Chunk):
        return f"[{value.start}:{value.start + len(value.tokens)} x{value.num_logits}]"
    if isinstance(value, StepInput):
        return shown(value.chunks) + (f" copies={shown(value.copies)}" if value.copies else "")
    if isinstance(value, StepPlan):
        return f"preempted={value.preempted} " + shown(value.chunks)
    if isinstance(value, RowToSample):
        return f"s{value.seq.seq_id}{'' if value.bits is None else ' masked'}{' shared' if value.shared else ''}"
    if isinstance(value, np.ndarray | torch.Tensor):
        return f"{tuple(value.shape)}"
    if isinstance(value, float) or callable(value) or value == frozenset():
        return ""
    if isinstance(value, list) and len(value) > 6 and isinstance(value[0], int):
        return f"{len(value)} tokens"
    if type(value) in (list, tuple):
        return "(" + ", ".join(map(shown, value)) + ")"
    if isinstance(value, tuple):  # a NamedTuple
        return type(value).__name__ + "(" + ", ".join(map(shown, value)) + ")"
    return str(value)


def controlled(*steps: Any) -> ControllerCall:
    return ControllerCall("program", list(steps))


def mixed_run() -> tuple[list[str], list[list[Event]]]:
    """Return the calls, and the events by request."""
    calls: list[str] = []
    params = SamplingParams(seed=3, max_tokens=12, ignore_eos=True)
    free = SamplingParams(seed=5, max_tokens=24)
    wait = [("wait", "x"), ("say", "w")]
    requests: list[dict[str, Any]] = [
        {"prompt": encode("A plain prompt of some length"), "sampling": params, "limit": 41},
        {"sampling": SamplingParams(temperature=0.0, max_tokens=3, logprobs=2), "score_from": 1, "limit": 8},
        {
            "sampling": free,
            "controller": controlled(
                ("say", "ab"), ("fork", [wait, [("any", 6), ("set", "x", "")], [("back", 2, "XYZ")]]), ("idle", 2)
            ),
        },
        {"sampling": free, "controller": controlled(("any", 8), ("force", "forced"), ("any", 3)), "priority": 1},
        {"sampling": free, "controller": controlled(("say", "z"), ("back", 1, "z"), ("fail", "on purpose"))},
        {"prompt": encode("A plain prompt of another"), "sampling": params, "salt": "s", "limit": 37},
        {"limit": 5, "score_from": 0, "sampling": SamplingParams(logprobs=0, max_tokens=0)},
    ]
    bench = LoopBench(
        NullExecutor(num_pages=22),
        ReadyRuntime({"program": Program}),
        host_sampler(),
        max_num_seqs=4,
        max_batch_tokens=14,
        calm_rounds=3,
        wrap=lambda name, part: Recorder(name, part, calls),
    )
    return calls, bench.run(requests)


def texts(events: Sequence[Event]) -> list[str]:
    """Return the ends of all forks, and the number of token events."""
    ends = [event for event in events if isinstance(event, FinishEvent)]
    ends += [event.event for event in events if isinstance(event, ForkEvent) and isinstance(event.event, FinishEvent)]
    num_tokens = sum(isinstance(getattr(event, "event", event), TokenEvent) for event in events)
    return [f"{end.reason} {end.text!a} {end.usage}" for end in ends] + [f"{num_tokens} tokens told"]


def test_a_step_calls_the_parts_of_the_engine_in_the_recorded_order() -> None:
    calls, told = mixed_run()
    lines = [*calls, *(line for events in told for line in texts(events))]
    if os.environ.get("AICI_RECORD_CALLS"):
        RECORDING.write_text("".join(f"{line}\n" for line in lines))
    assert lines == RECORDING.read_text().splitlines()
    preempted = [line for line in calls if line.startswith("scheduler.record_time") and "preempted=[]" not in line]
    assert preempted
    assert any(line.startswith("scheduler.fork") for line in calls)
