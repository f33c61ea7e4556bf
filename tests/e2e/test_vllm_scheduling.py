"""Controllers in vLLM's scheduler, with real guests and a fake of vLLM: `tests/vllm` has the real one."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aici.guest_runtime import GuestRuntime
from aici.vllm_guests import ScheduledGuests
from aici.vllm_scheduling import GuestScheduling
from aici_engine.vllm.row_engine import Words
from tests.engine.support import EOS, EOT, VOCAB_SIZE, write_tokenizer
from tests.support.fake_vllm import ControlledFakeScheduler, FakeRequest, FakeScheduler, params, run, text

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def starters(folder: Path) -> Iterator[list[GuestRuntime]]:
    """The runtimes so far; the last one is in use."""
    made: list[GuestRuntime] = []
    yield made
    for starter in made:
        starter.close()


@pytest.fixture(scope="module")
def guests(folder: Path, starters: list[GuestRuntime]) -> Iterator[ScheduledGuests]:
    def start() -> GuestRuntime:
        starters.append(GuestRuntime(folder, engine="vLLM"))
        return starters[-1]

    made = ScheduledGuests(start, num_logits=VOCAB_SIZE + 40)
    yield made
    made.close()


@pytest.fixture
def scheduler(guests: ScheduledGuests) -> ControlledFakeScheduler:
    return ControlledFakeScheduler(guests)


def request(key: str, aici: object = None, **options: Any) -> FakeRequest:
    return FakeRequest(key, list(b"Hello"), params(aici, **options))


def js(program: str) -> dict[str, str]:
    return {"controller": "jsctrl", "controller_arg": program}


def test_constrained_rows_beside_plain_rows(scheduler: ControlledFakeScheduler) -> None:
    wanted = {
        "regex": ({"regex": "[0-9]{3}[a-z]{2}"}, r"[0-9]{3}[a-z]{2}"),
        "choice": ({"choice": ["the quick fox", "the quick dog"]}, r"the quick (fox|dog)"),
        "script": (js("await $`Two: `; await gen({ regex: /[a-z]{4}/ }); await $`.`;"), r"Two: [a-z]{4}\."),
    }
    rows = {key: request(key, aici) for key, (aici, _) in wanted.items()}
    rows |= {"plain": request("plain", max_tokens=12)}
    for row in rows.values():
        scheduler.add_request(row)
    masks = run(scheduler)
    for key, (_, pattern) in wanted.items():
        assert re.fullmatch(pattern, text(rows[key])), key
        assert rows[key].reason == "stop"
    assert rows["plain"].reason == "length"
    assert not any("plain" in step for step in masks)


def test_masks_are_words_over_all_logits_and_open_each_eos(scheduler: ControlledFakeScheduler) -> None:
    row = request("a", {"regex": "[0-9]?"})
    scheduler.add_request(row)
    [first, *_] = [step["a"] for step in run(scheduler) if "a" in step]
    assert len(first) == -(-(VOCAB_SIZE + 40) // 32)
    is_open = {token for token in range(VOCAB_SIZE + 40) if first[token // 32] >> token % 32 & 1}
    assert is_open == {*range(ord("0"), ord("9") + 1), int(EOS), int(EOT)}


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("await fork(2); await gen({maxTokens: 2});", "forks into 2: vLLM cannot"),
        ("await $`a`; await waitVars('never');", "waits for another fork: vLLM cannot"),
        ("await $`a`; throw new Error('broken')", "broken"),
    ],
)
def test_what_cannot_be_had_ends_its_own_request(
    scheduler: ControlledFakeScheduler, caplog: pytest.LogCaptureFixture, program: str, said: str
) -> None:
    bad, good = request("bad", js(program)), request("good", {"regex": "[a-z]{9}"})
    scheduler.add_request(bad)
    scheduler.add_request(good)
    run(scheduler)
    assert bad.reason == "error"
    assert said in caplog.text
    assert re.fullmatch("[a-z]{9}", text(good))


@pytest.mark.parametrize(
    ("aici", "options"), [({"nix": 1}, {}), ({"regex": "a"}, {"min_tokens": 3}), ({"controller": "nix"}, {})]
)
def test_a_refused_request_ends_with_an_error(
    scheduler: ControlledFakeScheduler, aici: object, options: dict[str, Any]
) -> None:
    row = request("bad", aici, **options)
    scheduler.add_request(row)
    run(scheduler)
    assert row.reason == "error"
    assert not row.output_token_ids


def test_aborts_at_any_step_leave_no_guest(scheduler: ControlledFakeScheduler, starters: list[GuestRuntime]) -> None:
    rows = [request(f"abort-{k}", {"regex": "[a-z]{30}"}) for k in range(8)]
    for row in rows:
        scheduler.add_request(row)
    scheduler.finish_requests("abort-7", "abort")  # its guest is starting
    run(scheduler, between=lambda step: scheduler.finish_requests(f"abort-{step}", "abort"))
    assert {row.reason for row in rows} == {"abort"}
    scheduler.schedule()  # with nothing to compute, guests that have ended are freed
    assert not starters[-1].guests.keys()
    assert not scheduler._guests.starting()


def test_a_dead_runtime_fails_controlled_requests_only_and_the_next_one_gets_another(
    scheduler: ControlledFakeScheduler, starters: list[GuestRuntime]
) -> None:
    plain, controlled = request("plain"), request("controlled", {"regex": "[a-z]{30}"})
    scheduler.add_request(plain)
    scheduler.add_request(controlled)

    def kill(step: int) -> None:
        if len(controlled.output_token_ids) == 5 and not starters[-1].runtime.wait_ended(0):
            os.kill(starters[-1].runtime.pid, signal.SIGKILL)
            assert starters[-1].runtime.wait_ended(30)

    run(scheduler, between=kill)
    assert (plain.reason, controlled.reason) == ("length", "error")
    later = request("later", {"regex": "[0-9]{3}"})
    scheduler.add_request(later)
    run(scheduler)
    assert re.fullmatch("[0-9]{3}", text(later))
    assert len(starters) == 2


def test_masks_stand_beside_those_of_the_schedulers_own_grammars(guests: ScheduledGuests) -> None:
    class WithGrammars(FakeScheduler):
        """vLLM's own structured outputs: a row for the request `own`."""

        def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
            keys = [key for key in scheduler_output.num_scheduled_tokens if key == "own"]
            rows = np.full((len(keys), -(-(VOCAB_SIZE + 40) // 32)), -1, np.int32)
            return SimpleNamespace(structured_output_request_ids=keys, grammar_bitmask=rows) if keys else None

    class Both(GuestScheduling, WithGrammars):
        def _make_grammar_output(self, keys: list[str], rows: Words) -> Any:
            return SimpleNamespace(structured_output_request_ids=keys, grammar_bitmask=rows)

    scheduler = Both()
    scheduler._guests = guests
    ours, own = request("ours", {"regex": "[0-9]{2}"}), request("own", max_tokens=1 << 30)
    scheduler.add_request(ours)
    scheduler.add_request(own)

    def end_own(step: int) -> None:
        if ours.reason:
            scheduler.finish_requests("own", "abort")

    masks = run(scheduler, between=end_own)
    assert any(list(step) == ["own", "ours"] for step in masks)
    assert re.fullmatch("[0-9]{2}", text(ours))
