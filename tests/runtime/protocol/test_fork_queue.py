"""The order of forks: owners in turn, and a long order in parts."""

from collections import deque
from typing import TYPE_CHECKING, cast

from aici_base.ids import SeqId
from aici_runtime.protocol.fork_queue import FORKS_AT_A_TIME, ForkOrder, ForkQueue

if TYPE_CHECKING:
    from aici_runtime.memory.worker_slots import WorkerSlot

_SLOT = cast("WorkerSlot", None)


def order(parent: int, owner: int, num_forks: int) -> ForkOrder:
    forks = deque((SeqId(parent + k), _SLOT) for k in range(1, num_forks + 1))
    return ForkOrder(SeqId(parent), owner, waiting=forks)


def serve(queue: ForkQueue, num_most: int) -> list[list[tuple[int, int]]]:
    """Let all orders in progress answer at once, again and again. Return the parents and the number of their forks."""
    rounds = []
    while started := [(order.parent_id, len(order.begun)) for order in queue.start(num_most)]:
        rounds.append(started)
        for each in queue.in_progress:
            queue.end_part(each)
    return rounds


def test_owners_take_turns() -> None:
    queue = ForkQueue()
    for parent, owner in ((100, 1), (200, 1), (300, 1), (400, 2), (500, 3)):
        queue.add(order(parent, owner, 1))
    assert serve(queue, 2) == [[(100, 1), (400, 1)], [(500, 1), (200, 1)], [(300, 1)]]


def test_an_order_for_many_forks_lets_others_in_between() -> None:
    queue = ForkQueue()
    queue.add(order(100, 1, 2 * FORKS_AT_A_TIME + 1))
    queue.add(order(200, 2, 1))
    assert serve(queue, 1) == [[(100, FORKS_AT_A_TIME)], [(200, 1)], [(100, FORKS_AT_A_TIME)], [(100, 1)]]


def test_a_removed_order_is_not_served() -> None:
    queue = ForkQueue()
    gone = [order(100, 1, 1), order(200, 2, 2 * FORKS_AT_A_TIME)]
    for each in (*gone, order(300, 1, 1)):
        queue.add(each)
    assert [each.parent_id for each in queue.start(2)] == [100, 200]
    queue.remove(gone[1])
    queue.end_part(gone[0])
    assert serve(queue, 2) == [[(300, 1)]]
    assert queue.in_progress == []
