"""The loop by itself, with a model that is none."""

import itertools
import queue
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from aici_base.ids import SeqId
from aici_engine.cache.ids import PageId
from aici_engine.cache.kvcache import KVCache
from aici_engine.cache.storage import KVStorage
from aici_engine.config import SamplingParams
from aici_engine.control.session import GuestSession
from aici_engine.events import Event, FinishEvent, ScoreEvent
from aici_engine.loop import Loop
from aici_engine.model.batch import Chunk
from aici_engine.model.interface import Model
from aici_engine.output import Output
from aici_engine.prefill_budget import PrefillBudget
from aici_engine.request import ControllerCall
from aici_engine.sample.device_sampler import DeviceSampler
from aici_engine.sample.masks import MaskApplier
from aici_engine.sample.sampler import HostSampler, Sampler
from aici_engine.sample.torch_pipeline import TensorMasks
from aici_engine.scheduler import Scheduler
from aici_engine.sequence import Sequence as EngineSequence
from tests.engine.programs import Program, by_fork
from tests.engine.support import EOS, VOCAB_SIZE, ScriptedRuntime, encode


class FakeModel(Model):
    """Every token is as likely as any. It fails when `runtime` has just forked a guest."""

    def __init__(self, runtime: ScriptedRuntime) -> None:
        self.context = 256
        self._runtime = runtime

    def forward(self, storage: KVStorage, chunks: Sequence[Chunk]) -> torch.Tensor:
        if any(op.clone_id for op in self._runtime.asked_for_masks):
            raise RuntimeError("no memory")
        return torch.zeros(sum(chunk.num_logits for chunk in chunks), VOCAB_SIZE)


class NoTensors:
    def copy_page(self, source: PageId, target: PageId) -> None: ...


class TableModel(Model):
    """What comes next depends on the last token alone."""

    def __init__(self) -> None:
        self.context = 256
        self._table = 3 * torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=torch.Generator().manual_seed(1))

    def forward(self, storage: KVStorage, chunks: Sequence[Chunk]) -> torch.Tensor:
        return torch.cat([self._table[list(chunk.tokens[-chunk.num_logits :])] for chunk in chunks if chunk.num_logits])


SIZES: Any = {"vocab_size": VOCAB_SIZE, "eos_token": EOS, "all_eos": [EOS], "num_logits": VOCAB_SIZE}


def on_host() -> HostSampler:
    return HostSampler(MaskApplier(**SIZES))


def on_device() -> DeviceSampler:
    """As on a GPU, but for the GPU."""
    cpu = torch.device("cpu")
    return DeviceSampler(on_host(), TensorMasks(**SIZES, device=cpu), cpu)


class Bench:
    """A loop on a thread of its own. After it nobody holds anything."""

    def __init__(self, model: Model, runtime: ScriptedRuntime, sampler: Sampler[Any]) -> None:
        self.runtime = runtime
        self.cache = KVCache(num_pages=64, page_size=4, copier=NoTensors())
        output = Output([bytes([byte]) for byte in range(256)])
        ids = itertools.count(100)
        eos_tokens = frozenset({EOS})
        self.loop = Loop(
            model=model,
            storage=KVStorage([], num_pages=64, page_size=4, dtype=torch.float32, device=torch.device("cpu")),
            cache=self.cache,
            scheduler=Scheduler(self.cache, max_num_seqs=8, max_batch_tokens=32, prefill_budget=PrefillBudget(None)),
            session=GuestSession(runtime, output, num_logits=VOCAB_SIZE, max_guests=8, eos_tokens=eos_tokens,
                                 calm_rounds=8, new_id=lambda: SeqId(next(ids))),
            sampler=sampler,
            output=output,
            eos_tokens=eos_tokens,
            eos_for_guests=EOS,
            kept_eos=None,
        )  # fmt: skip

    def run(self, requests: Sequence[dict[str, Any]]) -> list[list[Event]]:
        """What each is told."""
        told: list[queue.SimpleQueue[Event]] = [queue.SimpleQueue() for _ in requests]
        for number, (request, events) in enumerate(zip(requests, told, strict=True)):
            usual: Any = {"sampling": SamplingParams(), "controller": None, "limit": 100, "submitted_at": 0.0}
            self.loop.submit(
                EngineSequence(SeqId(1 + number), prompt=encode("Hello"), sink=events.put, **(usual | request))
            )
        thread = threading.Thread(target=self.loop.run)
        thread.start()
        try:
            return [_until_end(events) for events in told]
        finally:
            self.loop.stop()
            thread.join()
            self.cache.check_integrity()
            assert self.cache.usage == 0.0
            assert not self.runtime.live


def _until_end(events: "queue.SimpleQueue[Event]") -> list[Event]:
    seen: list[Event] = []
    while not seen or not isinstance(seen[-1], FinishEvent):
        seen.append(events.get(timeout=10))
    return seen


def test_when_the_model_fails_in_a_fork_all_of_it_fails() -> None:
    runtime = ScriptedRuntime({"program": Program})
    program = [("say", "a"), ("fork", [[("say", "b")]] * 3)]
    [seen] = Bench(FakeModel(runtime), runtime, on_host()).run([{"controller": ControllerCall("program", program)}])
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
        bench = Bench(TableModel(), ScriptedRuntime({"program": Program}), sampler)
        return [
            [
                (fork.end.reason, fork.end.text, fork.end.tokens, str(fork.end.error))
                for fork in by_fork(events).values()
                if fork.end is not None
            ]
            + [event for event in events if isinstance(event, ScoreEvent)]
            for events in bench.run(requests)
        ]

    wanted = told(on_host())
    assert told(on_device()) == wanted
    assert [len(each) for each in wanted] == [1, 2, 1, 3, 1, 2]
