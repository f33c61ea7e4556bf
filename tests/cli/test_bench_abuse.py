"""The parts of `aici bench abuse` that need no server."""

import time
from collections.abc import Callable

import pytest
from wasmtime import Engine, Module

from aici_cli.bench.abuse.attacks import ATTACKS, Attacker
from aici_cli.bench.abuse.client import Body, Client
from aici_cli.bench.abuse.guests import guest, renamed, with_empty_functions, with_large_function
from aici_cli.bench.abuse.measure import Victim, Window
from tests.support.cli import aici


@pytest.mark.parametrize("kind", ["honest", "fork", "loop in mid", "loop in init", "busy mid"])
def test_guests_are_valid_modules(kind: str) -> None:
    Module.validate(Engine(), guest(kind))


@pytest.mark.parametrize(
    "make", [lambda wasm: with_empty_functions(wasm, 500), lambda wasm: with_large_function(wasm, 9000)]
)
def test_modules_that_are_hard_to_compile_are_valid(make: Callable[[bytes], bytes]) -> None:
    bomb = make(guest("honest"))
    Module.validate(Engine(), bomb)
    Module.validate(Engine(), renamed(bomb, "x" * 300))
    assert len(bomb) > len(guest("honest")) + 1900


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_is_prepared_without_a_server_but_for_uploads(name: str) -> None:
    uploaded = []

    def upload(wasm: bytes) -> str:
        uploaded.append(wasm)
        return "id"

    begin = ATTACKS[name].prepare(Attacker(Client("http://127.0.0.1:9/v1"), upload, print))
    assert callable(begin)
    for wasm in uploaded:
        Module.validate(Engine(), wasm)


def test_gaps_of_a_window_count_whole_and_an_open_gap_lasts_until_now() -> None:
    victim = Victim(Client("http://127.0.0.1:9/v1"))
    now = time.monotonic()
    words = [("sent", -20.0), ("token", -19.0), ("token", -18.5), ("end", -18.4), ("sent", -18.0), ("token", -16.0)]
    victim.events.extend((word, now + at, "") for word, at in words)
    gaps, longest, failures = victim.between(now - 19.5, now - 17.0)
    assert gaps == pytest.approx([0.5])
    assert longest == pytest.approx(2.0)
    assert failures == []
    victim.events.append(("failed", now - 1.0, "503 the engine died"))
    assert victim.between(now - 17.0, now)[1:] == (pytest.approx(15.0), ["503 the engine died"])
    victim.events[-1] = ("token", now - 10.0, "")
    assert victim.between(now - 11.0, now)[1] >= 10.0


def test_figures_of_a_window_without_a_token() -> None:
    window = Window(gaps_s=[], longest_s=3.0, failures=[], waits_s=[0.1, 0.4], refused=[])
    assert (window.gap_s(50), window.gap_s(99), window.wait_s) == (3.0, 3.0, 0.4)


def test_a_client_tells_refusals_and_silence() -> None:
    assert Client("http://127.0.0.1:9/v1", timeout_s=5).ask(Body(path="//health")) == "ConnectionRefusedError"


def test_an_unknown_attack_is_refused_with_the_names() -> None:
    done = aici("bench", "abuse", "--only", "stop")
    assert done.returncode == 2
    assert "no attack is called 'stop'" in done.stderr
    assert "stops-allowed" in done.stderr
