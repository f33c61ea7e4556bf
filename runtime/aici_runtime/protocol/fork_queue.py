"""Orders for forks, and which order comes next: owners in turn, and the orders of an owner as they came."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from aici_base.ids import SeqId
from aici_runtime.memory.worker_slots import WorkerSlot

FORKS_AT_A_TIME = 4
"""Forks that a worker makes for one request. An order for more is split, so that other orders come in between."""


@dataclass(slots=True, eq=False)
class ForkOrder:
    """The forks of a sequence that are still to be made. `waiting`: not begun. `begun`: part of the request that the
    parent's worker obeys; None for a fork that was freed meanwhile. `until`: when the worker is given up
    (time.monotonic())."""

    parent_id: SeqId
    owner: int
    waiting: deque[tuple[SeqId, WorkerSlot]] = field(default_factory=deque)
    begun: list[tuple[SeqId | None, WorkerSlot]] = field(default_factory=list)
    until: float = 0.0

    def begin_part(self) -> None:
        """Begin the next forks."""
        while self.waiting and len(self.begun) < FORKS_AT_A_TIME:
            self.begun.append(self.waiting.popleft())

    def begin_no_more(self, num_begun: int) -> None:
        """Undo the beginning of all begun forks but the first `num_begun`."""
        self.waiting.extendleft(
            (seq_id, slot) for seq_id, slot in reversed(self.begun[num_begun:]) if seq_id is not None
        )
        del self.begun[num_begun:]

    def seq_ids(self) -> list[SeqId]:
        """Return the ids of the forks."""
        return [seq_id for seq_id, _ in (*self.begun, *self.waiting) if seq_id is not None]


class ForkQueue:
    """The orders that wait, by owner (`WorkerSlotTable.owner`), and the orders in progress, oldest first."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, deque[ForkOrder]] = OrderedDict()
        self._in_progress: list[ForkOrder] = []

    def add(self, order: ForkOrder) -> None:
        """Let an order wait for its turn."""
        self._waiting.setdefault(order.owner, deque()).append(order)

    def start(self, num_most: int) -> Iterator[ForkOrder]:
        """Begin a part of waiting orders, so that at most `num_most` are in progress. Yield these orders."""
        while self._waiting and len(self._in_progress) < num_most:
            owner, orders = self._waiting.popitem(last=False)
            order = orders.popleft()
            if orders:
                self._waiting[owner] = orders  # at the end: the other owners come first
            order.begin_part()
            self._in_progress.append(order)
            yield order

    @property
    def in_progress(self) -> list[ForkOrder]:
        """A copy of the list of the orders in progress."""
        return list(self._in_progress)

    def end_part(self, order: ForkOrder) -> bool:
        """Forget the begun forks of an order in progress. Return whether the order is complete; else it waits again."""
        self._in_progress.remove(order)
        order.begun = []
        if order.waiting:
            self.add(order)
        return not order.waiting

    def remove(self, order: ForkOrder) -> None:
        """Forget an order."""
        if order in self._in_progress:
            self._in_progress.remove(order)
            return
        orders = self._waiting[order.owner]
        orders.remove(order)
        if not orders:
            del self._waiting[order.owner]
