"""Guests that spin beside other streams, with a real runtime whose limits are so long that no step may reach them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import FinishReason
from aici_engine.request import ControllerCall, Request, RequestHandle, Share
from aici_runtime.client import Runtime
from aici_runtime.config import RuntimeConfig
from tests.engine.support import wait_for_token
from tests.runtime.support import wat
from tests.support.processes import wait_until

SLOW = """(global.set $n (i64.const 20000000)) (loop $again
  (global.set $n (i64.sub (global.get $n) (i64.const 1))) (br_if $again (i64.ne (global.get $n) (i64.const 0))))"""
COUNTER = "(global $n (mut i64) (i64.const 0))"
ALLOW = "(i64.store (i32.const 0x408) (i64.const -1)) (call $allow (i32.const -8))"
VICTIM = Share(owner="victim")


@pytest.fixture(scope="module")
def engine(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, dict[str, str]]]:
    limits = RuntimeConfig(tokenizer=tiny_model, cache_dir=tmp_path_factory.mktemp("cache"), late_steps=2)
    limits = replace(limits, max_pre_step_time_ms=20_000, max_step_time_ms=20_000)
    config = EngineConfig(model_dir=tiny_model, num_pages=256, page_size=4, max_num_seqs=8)
    with Runtime(limits) as runtime:
        runtime.wait_ready()
        modules = {}
        for name, pre, mid in (("mid", "", wat.SPIN), ("pre", wat.SPIN, ""), ("slow", "", SLOW)):
            module = wat.Module()
            before = pre + module.answer(wat.PRE_GO)
            wasm = module.build(pre=before, mid=mid + ALLOW + module.answer(wat.SAMPLE), extra=COUNTER)
            modules[name] = runtime.mk_module(wasm).module_id
        with Engine(config, runtime=runtime) as engine:
            yield engine, modules


def submit(engine: Engine, module_id: str | None, max_tokens: int, owner: str) -> RequestHandle:
    sampling = SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=7, ignore_eos=module_id is None)
    controller = None if module_id is None else ControllerCall(module_id, "")
    return engine.submit(Request(prompt="ab", sampling=sampling, controller=controller, share=Share(owner=owner)))


@pytest.mark.parametrize("where", ["mid", "pre"])
def test_a_stream_beside_guests_that_spin(engine: tuple[Engine, dict[str, str]], where: str) -> None:
    """Each step that waited to the limit would take 20 seconds."""
    running, modules = engine
    alone = submit(running, None, 100, "victim").wait().text
    stream = submit(running, None, 900, "victim")
    wait_for_token(stream)
    spinning = [submit(running, modules[where], 100, f"eve {number % 2}") for number in range(3)]
    for _ in range(2):  # later requests do not begin anew
        assert submit(running, None, 100, "victim").wait().text == alone
    for handle in [*spinning, stream]:
        handle.abort()
    assert [handle.wait().reason for handle in [*spinning, stream]] == [FinishReason.ABORT] * 4


def test_a_slow_guest_beside_a_stream_generates_the_same_text(engine: tuple[Engine, dict[str, str]]) -> None:
    running, modules = engine
    alone = submit(running, modules["slow"], 20, "slow").wait()
    assert alone.reason is FinishReason.LENGTH
    stream = submit(running, None, 900, "victim")
    wait_for_token(stream)
    beside = [submit(running, modules["slow"], 20, "slow") for _ in range(2)]
    assert [handle.wait().text for handle in beside] == [alone.text] * 2
    stream.abort()
    stream.wait()


def test_processor_time_is_counted(engine: tuple[Engine, dict[str, str]]) -> None:
    running, modules = engine
    before = running.get_stats()["guest_cpu_seconds"]
    assert submit(running, modules["slow"], 5, "slow").wait().reason is FinishReason.LENGTH
    assert wait_until(lambda: running.get_stats()["guest_cpu_seconds"] > before, 30.0)


def test_who_has_used_up_the_budget_goes_on_slowly(engine: tuple[Engine, dict[str, str]]) -> None:
    running, modules = engine
    alone = submit(running, modules["slow"], 20, "slow").wait().text
    sampling = SamplingParams(max_tokens=20, temperature=1.0, seed=7)
    request = Request(
        prompt="ab",
        sampling=sampling,
        controller=ControllerCall(modules["slow"], ""),
        share=Share(owner="poor", guest_cpu_s=1e-6),
    )
    end = running.submit(request).wait()
    assert (end.text, end.reason) == (alone, FinishReason.LENGTH)
