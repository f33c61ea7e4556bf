"""The loop with fakes around."""

from dataclasses import replace
from typing import Any

import torch

from aici_engine.config import SamplingParams
from aici_engine.events import ScoreEvent
from aici_engine.request import ControllerCall
from aici_engine.sample.device_sampler import DeviceSampler
from aici_engine.sample.sampler import Sampler
from aici_engine.sample.torch_pipeline import TensorMasks
from aici_engine.step_input import StepInput
from tests.engine.loop_bench import SIZES, LoopBench, host_sampler
from tests.engine.null_executor import NullExecutor, NullStep
from tests.engine.programs import Program, by_fork
from tests.engine.support import ScriptedRuntime


class FailingExecutor(NullExecutor):
    """Fails in a step with a new fork in `runtime`."""

    def __init__(self, runtime: ScriptedRuntime) -> None:
        super().__init__()
        self._runtime = runtime

    def begin(self, step: StepInput) -> NullStep:
        if any(op.clone_id for op in self._runtime.asked_for_masks):
            raise RuntimeError("no memory")
        return super().begin(step)


def device_sampler() -> DeviceSampler:
    """Return the sampler of a GPU, on the CPU."""
    cpu = torch.device("cpu")
    return DeviceSampler(host_sampler(), TensorMasks(**SIZES, device=cpu), cpu)


def test_when_the_model_fails_in_a_fork_all_of_it_fails() -> None:
    runtime = ScriptedRuntime({"program": Program})
    program = [("say", "a"), ("fork", [[("say", "b")]] * 3)]
    [seen] = LoopBench(FailingExecutor(runtime), runtime, host_sampler()).run(
        [{"controller": ControllerCall("program", program)}]
    )
    forks = by_fork(seen)
    assert [str(told.end.error) for told in forks.values() if told.end] == ["the model failed: no memory"] * 3
    assert [told.end.text for told in forks.values() if told.end] == ["a"] * 3


def test_sampling_where_the_logits_are_changes_nothing() -> None:
    forks = [("any", 3), ("fork", [[("any", 4)], [("say", "b"), ("back", 1, "cd")], [("idle", 2)]]), ("any", 2)]
    params = SamplingParams(seed=3, max_tokens=30, ignore_eos=True)
    requests: list[dict[str, Any]] = [
        {"sampling": replace(params, top_k=0)},
        {"sampling": replace(params, temperature=0.0, logprobs=2), "score_from": 1},
        {"sampling": replace(params, top_p=0.7, repetition_penalty=1.5, logit_bias={65: 9.0})},
        {"sampling": params, "controller": ControllerCall("program", forks)},
        {"sampling": params, "controller": ControllerCall("program", [("any", 2), ("say", b"\xff"), ("say", "")])},
        {"limit": 5, "score_from": 0, "sampling": SamplingParams(logprobs=0, max_tokens=0)},
    ]

    def told(sampler: Sampler[Any]) -> list[list[Any]]:
        bench = LoopBench(NullExecutor(), ScriptedRuntime({"program": Program}), sampler)
        return [
            [
                (fork.end.reason, fork.end.text, fork.end.tokens, str(fork.end.error))
                for fork in by_fork(events).values()
                if fork.end is not None
            ]
            + [event for event in events if isinstance(event, ScoreEvent)]
            for events in bench.run(requests)
        ]

    wanted = told(host_sampler())
    assert told(device_sampler()) == wanted
    assert [len(each) for each in wanted] == [1, 2, 1, 3, 1, 2]
