"""Owners share the engine fairly, however many sequences each of them has, and nobody's place stays empty."""

import time
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from aici_base.ids import SeqId, TokenId
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.control.runtime import NoRuntime
from aici_engine.control.session import GuestSession
from aici_engine.engine import Engine
from aici_engine.event_output import EventOutput
from aici_engine.events import Event, FinishEvent
from aici_engine.fair_shares import OVER, in_turn
from aici_engine.request import ControllerCall, Request, Share
from aici_engine.sequences.sequence import Sequence
from aici_engine.step_plan import StepPlan
from aici_runtime.wire import SeqResult
from tests.engine.scheduler_bench import compute, fork, make, perform, sequence
from tests.engine.support import EOS, EOT
from tests.support.processes import wait_until

ALICE, BOB, HEAVY = Share(owner="alice"), Share(owner="bob"), Share(owner="heavy", weight=3)


def computed(plan: StepPlan) -> list[int]:
    return [int(chunk.seq.seq_id) for chunk in plan.chunks]


def of_owner(share: Share, ids: range, **options: int) -> list[Sequence]:
    return [sequence(number, 3, 100, share=share, **options) for number in ids]


def test_a_later_owner_gets_a_place_at_once_and_leaves_the_others() -> None:
    scheduler, cache = make(500, 4, 64)
    for seq in of_owner(ALICE, range(1, 9)):
        scheduler.add(seq)
    for _ in range(3):
        scheduler.admit()
        plan = scheduler.decide()
        assert computed(plan) == [1, 2, 3, 4]  # all places, while nobody else wants one
        perform(plan, cache)
    (bob,) = of_owner(BOB, range(10, 11))
    scheduler.add(bob)
    scheduler.admit()
    plan = scheduler.decide()
    assert computed(plan) == [1, 10, 2, 3]
    perform(plan, cache)
    scheduler.remove(bob)
    scheduler.admit()
    assert computed(scheduler.decide()) == [1, 2, 3, 4]


def test_forks_count_as_sequences_of_their_owner() -> None:
    scheduler, cache = make(500, 4, 64)
    scheduler.add(sequence(1, 3, 100, share=ALICE))
    scheduler.admit()
    plan = scheduler.decide()
    compute(plan, cache)
    fork(scheduler, plan.chunks[0], range(20, 36))
    plan.chunks[0].seq.tokens.append(TokenId(0))
    for seq in of_owner(BOB, range(2, 4)):
        scheduler.add(seq)
    scheduler.admit()
    assert computed(scheduler.decide()) == [1, 2, 20, 3]


def test_a_weight_counts_as_so_many_owners() -> None:
    scheduler, _ = make(500, 8, 64)
    for seq in [*of_owner(ALICE, range(1, 9)), *of_owner(HEAVY, range(11, 19))]:
        scheduler.add(seq)
    scheduler.admit()
    assert computed(scheduler.decide()) == [1, 11, 12, 13, 2, 14, 15, 16]


def test_no_more_than_most_compute_at_a_time() -> None:
    scheduler, cache = make(500, 8, 64)
    bounded = Share(owner="bounded", most=2)
    scheduler.add(sequence(1, 3, 100, share=bounded))
    scheduler.admit()
    plan = scheduler.decide()
    compute(plan, cache)
    fork(scheduler, plan.chunks[0], range(20, 24))
    plan.chunks[0].seq.tokens.append(TokenId(0))
    scheduler.admit()
    assert computed(scheduler.decide()) == [1, 20]
    scheduler.running[0].guest.suspended = True  # a sequence that waits leaves its place
    assert computed(scheduler.decide()) == [20, 21]


def test_an_owner_with_all_pages_gives_some_to_another() -> None:
    scheduler, cache = make(6, 8, 64)
    for seq in of_owner(ALICE, range(1, 4)):
        scheduler.add(seq)
    scheduler.admit()
    perform(scheduler.decide(), cache)
    for _ in range(4):
        perform(scheduler.decide(), cache)
    assert cache.num_free_pages == 0
    scheduler.add(sequence(10, 7, 100, share=BOB))
    scheduler.admit()
    assert [int(seq.seq_id) for seq in scheduler.running] == [1, 2, 10]  # the newest of alice's gave way
    assert 10 in computed(scheduler.decide())


@settings(max_examples=200, deadline=None)
@given(
    max_num_seqs=st.integers(1, 8),
    shares=st.lists(st.tuples(st.integers(1, 3), st.none() | st.integers(1, 3)), min_size=1, max_size=4),
    owners=st.lists(st.integers(0, 3), min_size=1, max_size=20),
)
def test_places_are_shared_by_turns(max_num_seqs: int, shares: list[tuple[int, int | None]], owners: list[int]) -> None:
    """Nobody has a place while another owner's earlier turn has none; no place is empty while somebody may take it."""
    known = [Share(owner=str(i), weight=weight, most=most) for i, (weight, most) in enumerate(shares)]
    sequences = [sequence(i + 1, 3, 100, share=known[owner % len(known)]) for i, owner in enumerate(owners)]
    scheduler, _ = make(500, max_num_seqs, 200)
    for seq in sequences:
        scheduler.add(seq)
    scheduler.admit()
    chosen = {chunk.seq for chunk in scheduler.decide().chunks}
    by_owner = {share.owner: [seq for seq in sequences if seq.share == share] for share in known}
    may_run = [seq for seq in sequences if by_owner[seq.share.owner].index(seq) < (seq.share.most or len(sequences))]
    turns = {seq: by_owner[seq.share.owner].index(seq) // seq.share.weight for seq in may_run}
    assert len(chosen) == min(max_num_seqs, len(may_run))
    assert chosen <= set(may_run)
    assert max(turns[seq] for seq in chosen) <= min((turns[seq] for seq in may_run if seq not in chosen), default=100)
    assert next(iter(in_turn(sequences))) is sequences[0]
    assert [seq for seq, turn in in_turn(sequences).items() if turn == OVER] == [
        seq for seq in sequences if seq not in may_run
    ]


def test_a_sequence_of_one_owner_takes_no_pages_of_the_same_owner() -> None:
    """As ever: a request that needs more pages than are free waits, though younger requests run."""
    scheduler, cache = make(6, 8, 64)
    for seq in of_owner(ALICE, range(1, 4)):
        scheduler.add(seq)
    scheduler.admit()
    for _ in range(5):
        perform(scheduler.decide(), cache)
    urgent = sequence(SeqId(9), 7, 100, share=ALICE, priority=-1)
    scheduler.add(urgent)
    scheduler.admit()
    assert scheduler.waiting == [urgent]


def test_an_owner_with_many_requests_does_not_delay_another(tiny_model: Path) -> None:
    """Alice's requests take all places for hundreds of steps; bob's request comes last and needs four."""
    config = EngineConfig(model_dir=tiny_model, num_pages=256, page_size=4, max_num_seqs=2, max_batch_tokens=32)
    ends: list[str] = []
    long = SamplingParams(temperature=0.0, max_tokens=200, logit_bias={EOS: -100.0, EOT: -100.0})

    def note(share: Share, event: Event) -> None:
        if isinstance(event, FinishEvent):
            ends.append(share.owner)

    with Engine(config) as engine:
        for share, sampling in [*[(ALICE, long)] * 6, (BOB, replace(long, max_tokens=4))]:
            engine.submit(Request(prompt="a", sampling=sampling, share=share), sink=partial(note, share))
        assert wait_until(lambda: len(ends) == 7, 60.0)
    assert ends == ["bob", *["alice"] * 6]


class SlowRuntime(NoRuntime):
    """Notes the requests whose guests start, without the name of the engine, and answers none of them."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def instantiate(self, **request: Any) -> Future[SeqResult]:
        self.begun.append(request["req_id"].removeprefix("e1-"))
        return Future()

    def discard(self, req_id: str) -> None:
        assert req_id.removeprefix("e1-") in self.begun


def test_the_guests_of_owners_start_in_turn() -> None:
    runtime = SlowRuntime()
    session = GuestSession(
        runtime, EventOutput([]), num_logits=8, max_guests=3, eos_tokens=frozenset(), new_id=lambda: SeqId(0),
        calm_rounds=8,
    )  # fmt: skip
    alice, bob = of_owner(ALICE, range(1, 7)), of_owner(BOB, range(7, 9))
    for seq in [*alice, *bob]:
        seq.controller = ControllerCall("guest")
        session.start(seq, lambda _error: None)
    assert runtime.begun == ["r1", "r2", "r3"]
    for seq in alice[:3]:
        session.drop(seq)
    assert runtime.begun[3:] == ["r7", "r4", "r5"]  # with one guest each, the older request is next


def test_an_owner_in_all_places_keeps_no_other_out() -> None:
    """Guests cannot be taken back, so there are places for the first guests of owners without any."""
    runtime = SlowRuntime()
    session = GuestSession(
        runtime, EventOutput([]), num_logits=8, max_guests=3, more_guests=2, eos_tokens=frozenset(),
        new_id=lambda: SeqId(0), calm_rounds=8,
    )  # fmt: skip
    carol, dave = Share(owner="carol"), Share(owner="dave")
    alice, bob = of_owner(ALICE, range(1, 7)), of_owner(BOB, range(7, 10))
    for seq in [*alice, *bob, *of_owner(carol, range(10, 12)), *of_owner(dave, range(12, 13))]:
        seq.controller = ControllerCall("guest")
        session.start(seq, lambda _error: None)
    assert runtime.begun == ["r1", "r2", "r3", "r7", "r10"], "one more guest each, as far as there are places"
    session.drop(bob[0])
    assert runtime.begun[5:] == ["r8"], "bob and dave have none, and bob's request is older"
    session.drop(alice[0])
    assert runtime.begun[6:] == ["r12"], "alice's next waits: more guests live than there are places"


@settings(max_examples=150, deadline=None)
@given(
    num_pages=st.integers(8, 24),
    max_num_seqs=st.integers(1, 4),
    greedy=st.lists(st.integers(1, 20), min_size=1, max_size=12),
    num_steps=st.integers(0, 30),
    late_len=st.integers(1, 20),
)
@example(num_pages=8, max_num_seqs=3, greedy=[3, 3, 11], num_steps=14, late_len=13)  # three had begun
def test_a_late_owner_waits_for_one_run_at_most(
    num_pages: int, max_num_seqs: int, greedy: list[int], num_steps: int, late_len: int
) -> None:
    """Whatever one owner has in places and pages, and however many of its sequences are older and wait.

    Runs that had begun, and lost their pages, go on first: their clients have a part of the answer.
    """
    scheduler, cache = make(num_pages, max_num_seqs, 64)
    limit = min(num_pages * 4, 28)
    submitted_at = time.monotonic()
    for number, prompt_len in enumerate(greedy):
        scheduler.add(sequence(number + 1, min(prompt_len, limit - 1), limit, at=submitted_at, share=ALICE))
    num_ended = 0

    def step() -> list[int]:
        nonlocal num_ended
        for seq in [seq for seq in scheduler.running if seq.room <= 0]:
            scheduler.remove(seq)
            num_ended += 1
        scheduler.admit()
        plan = scheduler.decide()
        perform(plan, cache)
        return computed(plan)

    for _ in range(num_steps):
        step()
    alive = [*scheduler.running, *scheduler.waiting]
    most = max(1, sum(seq.clock.timings().started_s is not None for seq in alive))
    scheduler.add(sequence(100, late_len, limit, at=time.monotonic(), share=BOB))
    first = num_ended
    while 100 not in step():
        assert num_ended - first <= most
    scheduler.admit()


def test_an_owner_holds_no_more_pages_than_it_may() -> None:
    scheduler, cache = make(100, 8, 64)
    bounded = Share(owner="bounded", pages=5)
    for seq in [*of_owner(bounded, range(1, 5)), *of_owner(BOB, range(5, 7))]:
        scheduler.add(seq)
    seen = set()
    for _ in range(30):
        scheduler.admit()
        plan = scheduler.decide()
        perform(plan, cache)
        owned = [seq for seq in scheduler.running if seq.share is bounded]
        assert len(owned) == 1 or sum(len(cache.page_table(seq.seq_id)) for seq in owned) <= 5
        seen |= {(seq.share.owner, len(owned)) for seq in scheduler.running}
        assert {5, 6} <= {int(seq.seq_id) for seq in scheduler.running}, "nobody else waits"
    assert {("bounded", 4), ("bounded", 1)} <= seen, "short sequences together, then the oldest alone, beyond the bound"
    scheduler.remove(scheduler.running[0])
    scheduler.admit()
    assert any(seq.share is bounded for seq in scheduler.running)
