"""A loop on a thread of its own, with fakes for the executor and the controller runtime."""

import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from aici_base.ids import SeqId
from aici_engine.cache.kvcache import KVCache
from aici_engine.config import SamplingParams
from aici_engine.control.session import GuestSession
from aici_engine.event_output import EventOutput
from aici_engine.events import Event, FinishEvent
from aici_engine.executor import Executor
from aici_engine.loop import Loop
from aici_engine.prefill_budget import PrefillBudget
from aici_engine.sample.masks import MaskApplier
from aici_engine.sample.sampler import HostSampler, Sampler
from aici_engine.scheduler import Scheduler
from aici_engine.sequences.sequence import Sequence as EngineSequence
from tests.engine.support import EOS, VOCAB_SIZE, ScriptedRuntime, encode

SIZES: Any = {"vocab_size": VOCAB_SIZE, "eos_token": EOS, "all_eos": [EOS], "num_logits": VOCAB_SIZE}


class ReadyRuntime(ScriptedRuntime):
    """Starts guests at once: the order of calls is the same in every run."""

    def instantiate(self, *, req_id: str, prompt: Any, module_id: str, module_arg: Any, seed: int) -> "Future[None]":
        guest = self.guests[module_id](module_arg)
        guest.init_prompt(list(prompt))
        self._started[req_id] = guest
        self.all.append(guest)
        future: Future[None] = Future()
        future.set_result(None)
        return future


def host_sampler() -> HostSampler:
    return HostSampler(MaskApplier(**SIZES))


def as_it_is(_name: str, part: Any) -> Any:
    return part


class LoopBench:
    """Run requests on a loop, then check that the cache and the runtime hold nothing.

    `wrap(name, part)` returns a replacement for a part of the loop.
    """

    def __init__(
        self,
        executor: Executor,
        runtime: ScriptedRuntime,
        sampler: Sampler[Any],
        *,
        max_num_seqs: int = 8,
        max_batch_tokens: int = 32,
        calm_rounds: int = 8,
        replay_timeout_s: float = 30.0,
        wrap: Callable[[str, Any], Any] = as_it_is,
    ) -> None:
        self.runtime = runtime
        self.executor = executor
        self.cache = KVCache(num_pages=executor.num_pages, page_size=executor.page_size)
        cache = wrap("cache", self.cache)
        output = wrap("output", EventOutput([bytes([byte]) for byte in range(256)]))
        ids = itertools.count(100)
        eos_tokens = frozenset({EOS})
        self.loop = Loop(
            executor=wrap("executor", executor),
            cache=cache,
            scheduler=wrap(
                "scheduler",
                Scheduler(
                    cache,
                    max_num_seqs=max_num_seqs,
                    max_batch_tokens=max_batch_tokens,
                    prefill_budget=PrefillBudget(None),
                ),
            ),
            session=wrap(
                "session",
                GuestSession(
                    wrap("runtime", runtime),
                    output,
                    num_logits=VOCAB_SIZE,
                    max_guests=8,
                    eos_tokens=eos_tokens,
                    calm_rounds=calm_rounds,
                    new_id=lambda: SeqId(next(ids)),
                ),
            ),
            sampler=wrap("sampler", sampler),
            output=output,
            eos_tokens=eos_tokens,
            eos_for_guests=EOS,
            kept_eos=None,
            replay_timeout_s=replay_timeout_s,
        )

    def run(self, requests: Sequence[dict[str, Any]]) -> list[list[Event]]:
        """Return the events by request, in the order of `requests`."""
        told: list[queue.SimpleQueue[Event]] = [queue.SimpleQueue() for _ in requests]
        for number, (request, events) in enumerate(zip(requests, told, strict=True)):
            usual: Any = {
                "prompt": encode("Hello"),
                "sampling": SamplingParams(),
                "controller": None,
                "limit": min(100, self.cache.page_size * self.cache.num_pages),
                "submitted_at": 0.0,
            }
            self.loop.submit(EngineSequence(SeqId(1 + number), sink=events.put, **(usual | request)))
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
            assert not self.loop._live.held


def _until_end(events: "queue.SimpleQueue[Event]") -> list[Event]:
    seen: list[Event] = []
    while not seen or not isinstance(seen[-1], FinishEvent):
        seen.append(events.get(timeout=10))
    return seen
