"""The loop by itself, with a model that is none."""

import itertools
import queue
import threading
from collections.abc import Sequence

import torch

from aici_engine.cache.ids import PageId
from aici_engine.cache.kvcache import KVCache
from aici_engine.cache.storage import Storage
from aici_engine.config import SamplingParams
from aici_engine.control.session import Session
from aici_engine.events import Event, FinishEvent
from aici_engine.loop import Loop
from aici_engine.model.batch import Chunk
from aici_engine.model.runner import Model
from aici_engine.output import Output
from aici_engine.pace import Pace
from aici_engine.request import ControllerCall
from aici_engine.sample.masks import MaskApplier
from aici_engine.sample.sampler import Sampler
from aici_engine.schedule import Scheduler
from aici_engine.sequence import Sequence as EngineSequence
from aici_runtime.ids import SeqId
from tests.engine.programs import Program, by_fork
from tests.engine.support import EOS, VOCAB_SIZE, ScriptedHost, encode


class FakeModel(Model):
    """Every token is as likely as any. It fails when `host` has just forked a guest."""

    def __init__(self, host: ScriptedHost) -> None:
        self.context = 256
        self._host = host

    def forward(self, storage: Storage, chunks: Sequence[Chunk]) -> torch.Tensor:
        if any(op.clone_id for op in self._host._asked or ()):
            raise RuntimeError("no memory")
        return torch.zeros(sum(chunk.num_logits for chunk in chunks), VOCAB_SIZE)


class NoTensors:
    def copy_page(self, source: PageId, target: PageId) -> None: ...


def test_when_the_model_fails_in_a_fork_all_of_it_fails() -> None:
    host = ScriptedHost({"program": Program})
    cache = KVCache(num_pages=32, page_size=4, copier=NoTensors())
    output = Output([bytes([byte]) for byte in range(256)])
    ids = itertools.count(100)
    eos_tokens = frozenset({EOS})
    loop = Loop(
        model=FakeModel(host),
        storage=Storage([], num_pages=32, page_size=4, dtype=torch.float32, device=torch.device("cpu")),
        cache=cache,
        scheduler=Scheduler(cache, max_num_seqs=8, max_batch_tokens=32, pace=Pace(None)),
        session=Session(host, output, num_logits=VOCAB_SIZE, max_guests=8, eos_tokens=eos_tokens,
                        new_id=lambda: SeqId(next(ids))),
        sampler=Sampler(MaskApplier(vocab_size=VOCAB_SIZE, eos_token=EOS, all_eos=[EOS], num_logits=VOCAB_SIZE)),
        output=output,
        eos_tokens=eos_tokens,
        eos_for_guests=EOS,
        kept_eos=None,
    )  # fmt: skip
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    thread = threading.Thread(target=loop.run)
    thread.start()
    seen: list[Event] = []
    try:
        program = [("say", "a"), ("fork", [[("say", "b")]] * 3)]
        loop.submit(
            EngineSequence(SeqId(1), prompt=encode("Hello"), sampling=SamplingParams(), limit=100, submitted_at=0.0,
                           controller=ControllerCall("program", program), sink=events.put)
        )  # fmt: skip
        while not seen or not isinstance(seen[-1], FinishEvent):
            seen.append(events.get(timeout=10))
    finally:
        loop.stop()
        thread.join()
    forks = by_fork(seen)
    assert [str(told.end.error) for told in forks.values() if told.end] == ["the model failed: no memory"] * 3
    assert [told.end.text for told in forks.values() if told.end] == ["a"] * 3
    cache.check_integrity()
    assert cache.usage == 0.0
    assert not host.live
