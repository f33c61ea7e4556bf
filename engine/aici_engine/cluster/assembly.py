"""How a driver gets its stages together: connect, load, attach. The result is an epoch."""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_base.ids import TokenId
from aici_engine.cache.storage import KVStorage
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import (
    Attach,
    Attached,
    FrameError,
    FromStage,
    LoadStage,
    MeasureSpeed,
    NeedTensors,
    Ping,
    Refused,
    StageFacts,
    StageLoaded,
    StageLost,
    StageSpeed,
    StepFailed,
    decode_from_stage,
)
from aici_engine.cluster.link import LinkGroup, LinkLostError, StageLink
from aici_engine.cluster.page_changes import PageTableSender
from aici_engine.cluster.plan import PipelinePlan
from aici_engine.cluster.stage_planner import MeasuredSpeed, StagePlanner
from aici_engine.model.stage_model import StageModel
from aici_engine.model.stage_range import LayerRange

_ANSWER_S: Final = 10.0

Link: TypeAlias = StageLink[FromStage]
Found = TypeVar("Found")
Conversation: TypeAlias = Generator[None, FromStage, Found]
"""What the driver says to one stage: sends through the link, and is resumed with every message of the stage."""


class StagePlaces(NamedTuple):
    """Where the stages are, in the order of the layers. `cuts`: the first layer after every stage; `None`: a
    StagePlanner decides."""

    addresses: tuple[StageAddress, ...]
    cuts: tuple[int, ...] | None = None


FindStages: TypeAlias = Callable[[], StagePlaces]
"""Called before every epoch, since a stage may come back elsewhere. Raises UnavailableError if there are too few
nodes."""


class DividedModel(Protocol):
    """A model that the driver divides. Nothing is read before a range is asked for."""

    num_layers: int
    hidden_size: int
    context: int
    eos_tokens: frozenset[TokenId]
    page_size: int

    def load_frame(self, part: LayerRange) -> LoadStage:
        """Return the order to load a range."""

    def make(self, part: LayerRange) -> StageModel:
        """Load a range into this process."""

    def send_tensors(self, link: Link, asked: NeedTensors) -> Conversation[None]:
        """Send tensors that a stage lacks."""


class Budget(NamedTuple):
    """What limits the pages of the KV cache. `num_pages`: as configured, or `None`. `useful_pages`: more are of no use.
    `driver_bytes`: memory for the driver's own pages."""

    num_pages: int | None
    useful_pages: int
    driver_bytes: int


@dataclass
class StageState:
    """What the driver knows of a stage. `rtt_s`: the round trip to the driver, when the stage was attached."""

    address: StageAddress
    part: LayerRange
    facts: StageFacts
    loaded: StageLoaded
    rtt_s: float


@dataclass
class Epoch:
    """A life of the pipeline: all stages are attached, and the cache is empty."""

    number: int
    links: list[Link]
    stages: list[StageState]
    near: StageModel
    storage: KVStorage
    num_pages: int
    tables: PageTableSender = field(default_factory=PageTableSender)
    next_number: int = 1


class Assembly:
    """Owns the links to the stages, and the driver's own range. Used by one thread at a time, except `stop`."""

    def __init__(
        self,
        model: DividedModel,
        find_stages: FindStages,
        links: LinkGroup,
        *,
        budget: Budget,
        max_batch_tokens: int,
        max_context: int,
        on_lost: Callable[[LinkLostError], None],
        planner: StagePlanner | None = None,
    ) -> None:
        """Takes over `links`. `on_lost`: see `LinkGroup.connect`. `planner`: for places without cuts."""
        self.model = model
        self.links = links
        self._find_stages = find_stages
        self._budget = budget
        self._max_batch_tokens = max_batch_tokens
        self._max_context = max_context
        self._on_lost = on_lost
        self._planner = planner
        self._open: list[Link] = []
        self._near: StageModel | None = None
        self._epoch = 0
        self._num_pages: int | None = None
        self._stopping = False

    def assemble(self) -> Epoch:
        """Connect, load what is not in memory, and attach. May take minutes.

        Raises AiciError if a stage is not there, refuses, or has too little memory.
        """
        self._close_links()
        try:
            return self._assemble()
        except BaseException:
            self._close_links()
            raise

    def stop(self) -> None:
        """Let a running `assemble` raise soon. For any thread."""
        self._stopping = True
        self.links.wake()

    def close(self) -> None:
        self.links.close()

    def _assemble(self) -> Epoch:
        places = self._find_stages()
        links = self._connect(places.addresses)
        facts = self._talk([_facts() for _ in links], timeout_s=_ANSWER_S)
        cuts, planned_pages = places.cuts, self._budget.useful_pages
        if cuts is None:
            plan = self._plan(links, facts)
            cuts, planned_pages = tuple(stage.part.last for stage in plan.stages[:-1]), plan.num_pages
        parts = _parts(cuts, self.model.num_layers)
        for link, part in zip(links, parts, strict=False):
            link.send(self.model.load_frame(part))
        if self._near is None or self._near.part != parts[-1]:
            self._near = None  # its memory is needed for the new range
            self._near = self.model.make(parts[-1])
        loaded = self._talk([self._loaded(link) for link in links], timeout_s=None)
        self._num_pages = num_pages = self._agree_on_pages(links, loaded, useful=planned_pages)
        self._epoch = max(self._epoch, *(each.epoch for each in facts)) + 1
        storage = self._near.make_storage(num_pages=num_pages, page_size=self.model.page_size)
        for i, link in enumerate(links):
            link.send(self._attach(i, links, num_pages, rows_only=not self._near.part.num_layers))
        rtts = self._talk([self._attached(link) for link in links], timeout_s=_ANSWER_S)
        stages = [StageState(*each) for each in zip(places.addresses, parts, facts, loaded, rtts, strict=False)]
        return Epoch(self._epoch, links, stages, self._near, storage, num_pages)

    def _plan(self, links: Sequence[Link], facts: Sequence[StageFacts]) -> PipelinePlan:
        assert self._planner is not None, "places without cuts need a planner"

        def measure() -> list[MeasuredSpeed]:
            return self._talk([_speed(link) for link in links], timeout_s=_ANSWER_S)

        names = [link.address.endpoint for link in links]
        return self._planner.plan(names, facts, measure, num_pages=self._num_pages)

    def _connect(self, addresses: Sequence[StageAddress]) -> list[Link]:
        for address in addresses:
            most = self._max_batch_tokens * self.model.hidden_size * 4
            link = StageLink(self.links, address, decode_from_stage, max_body_bytes=most, on_lost=self._on_lost)
            self._open.append(link)
        for link in self._open:
            link.wait_ready()
        return self._open

    def _close_links(self) -> None:
        for link in self._open:
            link.close()
        self._open = []

    def _talk(self, conversations: Sequence[Conversation[Found]], *, timeout_s: float | None) -> list[Found]:
        """Hold one conversation with every stage at the same time. Return the results."""
        results: dict[int, Found] = {}
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for conversation in conversations:
            next(conversation)
        while True:
            for i, link in enumerate(self._open):
                while i not in results and (received := link.receive(0)) is not None:
                    try:
                        conversations[i].send(received.message)
                    except StopIteration as end:
                        results[i] = end.value
                    except AiciError as error:
                        raise error.with_message(f"stage {i} at {link.address.endpoint}: {error.message}") from error
                if link.lost is not None:
                    raise link.lost
            if len(results) == len(conversations):
                return [results[i] for i in range(len(conversations))]
            left = None if deadline is None else deadline - time.monotonic()
            if self._stopping or (left is not None and left <= 0):
                silent = next(link for i, link in enumerate(self._open) if i not in results)
                raise UnavailableError(f"the stage at {silent.address.endpoint} does not answer")
            self.links.wait(left)

    def _loaded(self, link: Link) -> Conversation[StageLoaded]:
        while True:
            match _checked((yield)):
                case StageLoaded() as loaded:
                    return loaded
                case NeedTensors() as asked:
                    yield from self.model.send_tensors(link, asked)

    def _attached(self, link: Link) -> Conversation[float]:
        """Return the round trip in seconds."""
        while not isinstance(_checked((yield)), Attached):
            pass
        return (yield from _round_trip(link))

    def _attach(self, i: int, links: Sequence[Link], num_pages: int, *, rows_only: bool) -> Attach:
        is_last = i == len(links) - 1
        return Attach(
            epoch=self._epoch,
            stage=i,
            num_stages=len(links),
            next="" if is_last else str(links[i + 1].address),
            num_pages=num_pages,
            page_size=self.model.page_size,
            max_batch_tokens=self._max_batch_tokens,
            max_context=self._max_context,
            rows_only=is_last and rows_only,
        )

    def _agree_on_pages(self, links: Sequence[Link], loaded: Sequence[StageLoaded], *, useful: int) -> int:
        """Return the pages of every stage's cache: the same number in all epochs."""
        assert self._near is not None
        page_bytes = self._near.token_bytes * self.model.page_size
        room = [(each.max_pages, link.address.endpoint) for each, link in zip(loaded, links, strict=True)]
        if page_bytes:
            room.append((self._budget.driver_bytes // page_bytes, "this process"))
        least, where = min(room)
        wanted = self._num_pages or self._budget.num_pages or min(least, useful)
        if not 1 <= wanted <= least:
            raise UsageError(
                f"{where} has memory for {least} pages of {self.model.page_size} tokens, and {max(1, wanted)} are "
                "needed",
                hint="give this stage fewer layers, or more memory",
            )
        return wanted


def _facts() -> Conversation[StageFacts]:
    while True:
        if isinstance(message := _checked((yield)), StageFacts):
            return message


def _speed(link: Link) -> Conversation[MeasuredSpeed]:
    link.send(MeasureSpeed())
    speed = _checked((yield))
    if not isinstance(speed, StageSpeed):
        raise FrameError(f"{type(speed).__name__} came in place of the stage's speed")
    return MeasuredSpeed(speed, (yield from _round_trip(link)))


def _round_trip(link: Link) -> Conversation[float]:
    """Return seconds."""
    began = time.perf_counter()
    link.send(Ping(0))
    _checked((yield))
    return time.perf_counter() - began


def _checked(message: FromStage) -> FromStage:
    """Raises the failure that the message carries."""
    if isinstance(message, Refused | StepFailed | StageLost):
        raise message.failure.error()
    return message


def _parts(cuts: tuple[int, ...], num_layers: int) -> list[LayerRange]:
    """Return the ranges of all stages, then the driver's."""
    if cuts[-1] > num_layers:
        raise UsageError(f"the model has {num_layers} layers: there is no cut after layer {cuts[-1]}")
    if len(set(cuts)) < len(cuts):
        raise UsageError(
            f"a stage would have nothing to compute: {num_layers} layers, cuts at {','.join(map(str, cuts))}",
            hint="use fewer stages, or other cuts",
        )
    ranges = [
        LayerRange(first, last, embedding=i == 0, head=False) for i, (first, last) in enumerate(pairwise((0, *cuts)))
    ]
    return [*ranges, LayerRange(cuts[-1], num_layers, embedding=False, head=True)]
