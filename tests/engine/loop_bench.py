"""A loop on a thread of its own, with fakes for the executor and the controller runtime."""

import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Self

from aici_base.ids import SeqId, TokenId
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
from aici_engine.speculation.speculator import Speculator
from tests.engine.support import EOS, VOCAB_SIZE, ScriptedRuntime, encode

SIZES: Any = {"vocab_size": VOCAB_SIZE, "eos_token": EOS, "all_eos": [EOS], "num_logits": VOCAB_SIZE}


class ReadyRuntime(ScriptedRuntime):
    """Starts guests at once: the order of calls is the same in every run."""

    def instantiate(
        self, *, req_id: str, prompt: Any, module_id: str, module_arg: Any, seed: int, user: str
    ) -> "Future[None]":
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
    """Run requests on a loop, in a context. At the end, check that the cache and the runtime hold nothing.

    `speculator` may be a function of the cache. `wrap(name, part)` returns a replacement for a part of the loop.
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
        speculator: Speculator | Callable[[KVCache], Speculator] | None = None,
        kept_eos: TokenId | None = None,
        wrap: Callable[[str, Any], Any] = as_it_is,
    ) -> None:
        self.runtime = runtime
        self._num_requests = 0
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
                    depth=executor.depth,
                    speculator=speculator(self.cache) if callable(speculator) else speculator,
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
            kept_eos=kept_eos,
            replay_timeout_s=replay_timeout_s,
        )
        self._thread = threading.Thread(target=self.loop.run)

    def run(self, requests: Sequence[dict[str, Any]]) -> list[list[Event]]:
        """Return the events by request, in the order of `requests`."""
        told = [self.submit(request) for request in requests]
        with self:
            return [until_end(events) for events in told]

    def submit(self, request: dict[str, Any]) -> "queue.SimpleQueue[Event]":
        """Return the events to come."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        usual: Any = {
            "prompt": encode("Hello"),
            "sampling": SamplingParams(),
            "controller": None,
            "limit": min(100, self.cache.page_size * self.cache.num_pages),
            "submitted_at": 0.0,
        }
        self._num_requests += 1
        self.loop.submit(EngineSequence(SeqId(self._num_requests), sink=events.put, **(usual | request)))
        return events

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.loop.stop()
        self._thread.join()
        self.cache.check_integrity()
        assert self.cache.usage == 0.0
        assert not self.runtime.live or self.runtime.dies_at_round
        assert not self.loop._live.held


def until_end(events: "queue.SimpleQueue[Event]") -> list[Event]:
    seen: list[Event] = []
    while not seen or not isinstance(seen[-1], FinishEvent):
        seen.append(events.get(timeout=10))
    return seen
