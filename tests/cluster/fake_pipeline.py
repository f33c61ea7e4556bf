"""Stages in threads, with real sockets and a fake model; and steps to run on them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

from aici_base.errors import UsageError
from aici_base.ids import SeqId, TokenId
from aici_engine.cache.kvcache import KVCache
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.assembly import Assembly, Budget, Conversation, DividedModel, Link, StagePlaces
from aici_engine.cluster.frames import Buffer, FromStage, LoadStage, NeedTensors, TensorPiece
from aici_engine.cluster.link import LinkGroup
from aici_engine.cluster.pipeline import PipelineExecutor
from aici_engine.cluster.stage import WeightsLoader
from aici_engine.cluster.stage_planner import StagePlanner
from aici_engine.cluster.token import ClusterToken
from aici_engine.model.stage_range import LayerRange
from aici_engine.step_input import Chunk, PageCopy, StepInput
from tests.cluster.fake_model import HIDDEN_SIZE, VOCAB_SIZE, FakeStage
from tests.support.stage_threads import even_cuts, stage_thread

NUM_LAYERS, PAGE_SIZE = 6, 4


def load_frame(part: LayerRange) -> LoadStage:
    ends = part.embedding, part.head
    return LoadStage(b"m" * 32, b"{}", part.first, part.last, *ends, "float32", "torch", "cpu", PAGE_SIZE, 0, [])


class FakeDividedModel(DividedModel):
    num_layers = NUM_LAYERS
    hidden_size = HIDDEN_SIZE
    context = FakeStage.context
    eos_tokens = FakeStage.eos_tokens
    page_size = PAGE_SIZE

    def load_frame(self, part: LayerRange) -> LoadStage:
        return load_frame(part)

    def make(self, part: LayerRange) -> FakeStage:
        return FakeStage(part)

    def send_tensors(self, link: Link, asked: NeedTensors) -> Conversation[None]:
        raise NotImplementedError
        yield


class FakeLoader(WeightsLoader):
    """`models`: what was loaded so far. `fails`: the next load fails."""

    read_bytes = 100
    sent_bytes = 0

    def __init__(self, *, fails_at_run: int = 0) -> None:
        self.models: list[FakeStage] = []
        self.fails = False
        self._fails_at_run = fails_at_run

    def begin(self, load: LoadStage) -> FromStage | None:
        if self.fails:
            raise UsageError("no such model")
        self._part = LayerRange(load.first, load.last, embedding=load.embedding, head=load.head)
        return None

    def take(self, piece: TensorPiece, body: Buffer) -> tuple[FromStage | None, bool]:
        raise NotImplementedError

    def finish(self) -> FakeStage:
        self.models.append(FakeStage(self._part, fails_at_run=self._fails_at_run))
        return self.models[-1]


def running_stage(token: ClusterToken, loader: WeightsLoader | None = None, **options: Any) -> Any:
    return stage_thread(token, loader or FakeLoader(), **{"memory_bytes": 1 << 20, **options})


@contextmanager
def running_driver(
    token: ClusterToken,
    addresses: Sequence[StageAddress],
    *,
    cuts: Sequence[int] | None = None,
    depth: int | None = None,
    num_pages: int | None = 40,
    name: str = "the driver",
    patience_s: float = 0.0,
    planner: StagePlanner | None = None,
) -> Iterator[PipelineExecutor]:
    if cuts is None and planner is None:
        cuts = even_cuts(NUM_LAYERS, len(addresses))
    places = StagePlaces(tuple(addresses), None if cuts is None else tuple(cuts))
    driver = PipelineExecutor(
        lambda on_lost: Assembly(
            FakeDividedModel(),
            lambda: places,
            LinkGroup(token, role="driver", name=name),
            budget=Budget(num_pages, useful_pages=100, driver_bytes=1 << 20),
            max_batch_tokens=64,
            max_context=FakeStage.context,
            on_lost=on_lost,
            planner=planner,
        ),
        depth=depth,
        patience_s=patience_s,
    )
    try:
        yield driver
    finally:
        driver.close()


@contextmanager
def running_pipeline(num_stages: int, **options: object) -> Iterator[PipelineExecutor]:
    token = ClusterToken.new()
    with ExitStack() as stack:
        addresses = [stack.enter_context(running_stage(token)) for _ in range(num_stages)]
        yield stack.enter_context(running_driver(token, addresses, **options))


def random_steps(random: Random, num_steps: int, *, num_pages: int = 40) -> Iterator[StepInput]:
    """Yield steps of an imaginary engine: sequences come, fork, lose pages and go. Contains every kind of copy."""
    cache = KVCache(num_pages=num_pages, page_size=PAGE_SIZE)
    tokens: dict[SeqId, list[TokenId]] = {}
    next_id = 0
    while num_steps:
        action = random.random()
        if action < 0.25 and len(tokens) < 6:
            seq_id = SeqId(next_id := next_id + 1)
            # Few different tokens: prompts begin alike.
            tokens[seq_id] = [TokenId(random.choice((1, 2))) for _ in range(random.randint(1, 14))]
            cache.add(seq_id)
        elif action < 0.35 and tokens and len(tokens) < 6:
            parent = random.choice(list(tokens))
            seq_id = SeqId(next_id := next_id + 1)
            cache.fork(parent, seq_id)
            tokens[seq_id] = list(tokens[parent])
        elif action < 0.42 and tokens:
            cache.free(gone := random.choice(list(tokens)))
            del tokens[gone]
        elif action < 0.5 and tokens:
            cut = random.choice(list(tokens))
            cache.truncate(cut, random.randint(0, cache.num_cached(cut)))
        elif tokens and (step := _step(random, cache, tokens)) is not None:
            yield step
            num_steps -= 1


def _step(random: Random, cache: KVCache, tokens: dict[SeqId, list[TokenId]]) -> StepInput | None:
    chunks = []
    for seq_id, known in tokens.items():
        cache.extend(seq_id, known, len(known) - 1)
        start = cache.num_cached(seq_id)
        if start == len(known):
            if len(known) >= FakeStage.context or random.random() < 0.3:
                continue
            known.append(TokenId(random.randrange(1, VOCAB_SIZE)))
        end = random.randint(start + 1, len(known))
        if cache.reserve(seq_id, end):
            num_logits = random.choice((1, end - start)) if end == len(known) else random.choice((0, 0, 1))
            chunks.append(Chunk(seq_id, known[start:end], start, [], num_logits))
    if not chunks:
        return None
    # As the engine: pages are looked up when all are reserved, and count as written when the step has begun.
    chunks = [chunk._replace(pages=list(cache.page_table(chunk.seq_id))) for chunk in chunks]
    copies = [PageCopy(*copy) for copy in cache.take_copies()]
    step = StepInput(chunks, copies, cache.take_forgotten())
    for chunk in chunks:
        cache.advance(chunk.seq_id, tokens[chunk.seq_id], chunk.end)
    return step
