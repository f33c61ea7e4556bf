"""The engine without controllers, on a tiny model. transformers' own generate is the oracle for text."""

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_base.ids import TokenId
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import FinishEvent, FinishReason, TokenEvent
from aici_engine.request import Request
from tests.engine.support import EOS, EOT, encode, wait_for_token

PROMPTS = ["a", "Hello", "the quick brown fox " * 4, "x" * 60, "Zebra crossing", "1 2 3 4 5 6 7 8 9", "é", "end."]
GREEDY = SamplingParams(temperature=0.0, max_tokens=24)


@cache
def hf_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")


@cache
def hf_greedy(folder: Path, prompt: str, num_tokens: int) -> list[int]:
    import torch

    model = hf_model(folder)
    ids = torch.tensor([encode(prompt)])
    with torch.inference_mode():
        return model.generate(ids, do_sample=False, max_new_tokens=num_tokens)[0, ids.shape[1] :].tolist()


def finish(engine: Engine, prompt: str, params: SamplingParams = GREEDY) -> FinishEvent:
    return engine.submit(Request(prompt=prompt, sampling=params)).wait()


def ids(end: FinishEvent) -> list[int]:
    return [token.token_id for token in end.tokens]


class CountingEngine(Engine):
    """Notes every tokenized text."""

    def tokenize(self, text: str) -> list[TokenId]:
        self.__dict__.setdefault("texts", []).append(text)
        return super().tokenize(text)


def test_each_prompt_is_tokenized_once(tiny_model: Path) -> None:
    with CountingEngine(EngineConfig(model_dir=tiny_model, num_pages=64)) as engine:
        engine.generate(["a", "b"], max_tokens=1)
        list(engine.generate("c", stream=True, max_tokens=1))
        engine.submit(Request(prompt="d", sampling=GREEDY)).wait()
        engine.submit(Request(prompt=encode("e"), sampling=GREEDY)).wait()
        assert engine.__dict__["texts"] == ["a", "b", "c", "d"]


def test_greedy_is_transformers_greedy_alone_and_in_a_crowd(engine: Engine, tiny_model: Path) -> None:
    wanted = [hf_greedy(tiny_model, prompt, 24) for prompt in PROMPTS]
    assert len({tuple(w) for w in wanted}) == len(PROMPTS)
    alone = [ids(finish(engine, prompt)) for prompt in PROMPTS]
    handles = [engine.submit(Request(prompt=prompt, sampling=GREEDY)) for prompt in PROMPTS]
    crowd = [ids(handle.wait()) for handle in handles]
    assert alone == wanted
    assert crowd == wanted


def test_preemption_changes_nothing(tiny_model: Path) -> None:
    # 27 pages of 4 tokens hold the longest sequence, of 80 + 24 tokens, and little more.
    config = EngineConfig(model_dir=tiny_model, num_pages=27, page_size=4, max_num_seqs=8, max_batch_tokens=16)
    with Engine(config) as engine:
        handles = [engine.submit(Request(prompt=prompt, sampling=GREEDY)) for prompt in PROMPTS]
        crowd = [ids(handle.wait()) for handle in handles]
        assert engine.get_stats()["cache_usage"] == 0.0
        engine._components.cache.check_integrity()
        assert engine._components.loop.num_preemptions > 0
    assert crowd == [hf_greedy(tiny_model, prompt, 24) for prompt in PROMPTS]


def test_a_seed_fixes_the_text_whatever_runs_beside(engine: Engine) -> None:
    params = SamplingParams(temperature=1.5, top_p=0.9, min_p=0.01, seed=7, max_tokens=20, presence_penalty=0.5)
    alone = ids(finish(engine, "Hello", params))
    others = [engine.submit(Request(prompt=prompt, sampling=SamplingParams(max_tokens=30))) for prompt in PROMPTS]
    beside = ids(finish(engine, "Hello", params))
    for handle in others:
        handle.wait()
    assert beside == alone
    different = SamplingParams(temperature=1.5, top_p=0.9, min_p=0.01, seed=8, max_tokens=20, presence_penalty=0.5)
    assert ids(finish(engine, "Hello", different)) != alone


def test_prompts_that_are_no_tokens_are_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match="token 300"):
        engine.submit(Request(prompt=[300], sampling=GREEDY))  # type: ignore[list-item]
    with pytest.raises(UsageError, match="no tokens"):
        engine.generate("")
    assert finish(engine, "a").reason is FinishReason.LENGTH


def test_a_prompt_that_cannot_fit_is_refused_with_both_lengths(engine: Engine) -> None:
    with pytest.raises(UsageError, match=r"256 tokens.*256"):
        engine.generate("x" * 256)
    end = finish(engine, "x" * 255, SamplingParams(temperature=0.0))
    assert (end.reason, end.usage.sampled_tokens, end.usage.prompt_tokens) == (FinishReason.LENGTH, 1, 255)


@pytest.mark.parametrize("eos", [EOS, EOT])
def test_every_eos_of_the_model_ends_and_is_no_text(tiny_model: Path, tmp_path: Path, eos: int) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    weights = load_file(folder / "model.safetensors")
    # The head reads EOS from any hidden state.
    weights["lm_head.weight"] = torch.zeros_like(weights["lm_head.weight"])
    weights["model.norm.weight"] = torch.zeros_like(weights["model.norm.weight"])
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with Engine(EngineConfig(model_dir=folder, num_pages=64)) as engine:
        # All logits are equal: the seed decides the sampled token, and greedy takes token 0.
        requests = [Request(prompt="a", sampling=SamplingParams(top_k=0, seed=seed)) for seed in range(12)]
        ends = [handle.wait() for handle in [engine.submit(request) for request in requests]]
    reached = [end for end in ends if ids(end)[-1] == eos]
    assert reached
    for end in reached:
        assert end.reason is FinishReason.EOS
        assert end.tokens[-1].data == b""
        assert end.text.encode() == b"".join(t.data for t in end.tokens).decode("utf-8", "replace").encode()


def test_generate_in_all_its_shapes(engine: Engine) -> None:
    one = engine.generate("Hello", max_tokens=12, temperature=0.0)
    assert engine.generate(["Hello", "a"], max_tokens=12, temperature=0.0) == [
        one,
        engine.generate("a", max_tokens=12, temperature=0.0),
    ]
    assert "".join(engine.generate("Hello", stream=True, max_tokens=12, temperature=0.0)) == one
    pieces = list(engine.generate(["a", "Hello"], stream=True, max_tokens=12, temperature=0.0))
    assert "".join(piece for index, piece in pieces if index == 1) == one

    async def collect() -> str:
        return "".join([piece async for piece in engine.generate_async("Hello", max_tokens=12, temperature=0.0)])

    assert asyncio.run(collect()) == one


def test_the_events_add_up(engine: Engine) -> None:
    handle = engine.submit(Request(prompt="Hello", sampling=GREEDY))
    *events, end = handle.events()
    assert isinstance(end, FinishEvent)
    tokens = [event for event in events if isinstance(event, TokenEvent)]
    assert [event.token for event in tokens] == list(end.tokens)
    assert "".join(event.text for event in tokens) + end.tail == end.text
    assert (end.usage.prompt_tokens, end.usage.sampled_tokens, end.usage.ff_tokens, end.usage.cost) == (5, 24, 0, 48)
    assert list(handle.events()) == []
    assert handle.wait() is end
    assert end.timings.started_s is not None
    assert end.timings.first_token_s is not None
    assert 0 <= end.timings.started_s <= end.timings.first_token_s <= end.timings.total_s


def test_abort_ends_a_request_and_no_other(engine: Engine) -> None:
    long = SamplingParams(temperature=0.0)
    aborted = engine.submit(Request(prompt="a", sampling=long))
    other = engine.submit(Request(prompt="Hello", sampling=long))
    events = aborted.events()
    next(event for event in events if isinstance(event, TokenEvent))
    aborted.abort()
    aborted.abort()
    assert [e.reason for e in events if isinstance(e, FinishEvent)] == [FinishReason.ABORT]
    assert other.wait().usage.sampled_tokens == 256 - 5
    assert engine.get_stats()["cache_usage"] == 0.0


def test_a_stream_that_is_dropped_frees_its_pages(engine: Engine) -> None:
    stream = engine.generate("a", stream=True)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    engine.generate("a", max_tokens=1)
    assert engine.get_stats()["active_requests"] == 0


def test_two_engines_in_one_process(engine: Engine, tiny_model: Path) -> None:
    with Engine(EngineConfig(model_dir=tiny_model, num_pages=64)) as other:
        texts: dict[str, str] = {}

        def run(name: str, which: Engine) -> None:
            texts[name] = which.generate("Hello", max_tokens=40, temperature=0.0)

        threads = [threading.Thread(target=run, args=pair) for pair in (("one", engine), ("two", other))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert texts["one"] == texts["two"] == engine.generate("Hello", max_tokens=40, temperature=0.0)


def test_engines_made_at_the_same_time_do_not_mix_their_dtypes(tiny_model: Path) -> None:
    import torch

    def make(dtype: Any) -> str:
        with Engine(EngineConfig(model_dir=tiny_model, num_pages=64, dtype=dtype)) as engine:
            return engine.generate("Hello", max_tokens=4, temperature=0.0)

    with ThreadPoolExecutor(6) as pool:
        texts = list(pool.map(make, ["float32", "bfloat16", "int4"] * 2))
    assert texts == [make("float32"), make("bfloat16"), make("int4")] * 2
    assert make("int8")
    assert torch.get_default_dtype() is torch.float32


def test_shutdown_ends_what_runs(tiny_model: Path) -> None:
    with Engine(EngineConfig(model_dir=tiny_model, num_pages=64)) as engine:
        handle = engine.submit(Request(prompt="a", sampling=SamplingParams(ignore_eos=True)))
        wait_for_token(handle)
    assert handle.wait().reason is FinishReason.ABORT
    with pytest.raises(UnavailableError):
        engine.generate("a")
    engine.shutdown()


def test_a_sink_that_raises_does_not_take_the_engine_along(engine: Engine) -> None:
    def broken(event: object) -> None:
        raise RuntimeError("boom")

    engine.submit(Request(prompt="a", sampling=GREEDY), sink=broken)
    assert finish(engine, "Hello").reason is FinishReason.LENGTH


def test_an_idle_engine_uses_no_cpu(engine: Engine) -> None:
    engine.generate("a", max_tokens=2)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.02


def test_without_a_runtime_a_controller_is_refused(engine: Engine) -> None:
    from aici_engine.request import ControllerCall

    with pytest.raises(UnavailableError, match="no controller runtime"):
        engine.generate("a", controller=ControllerCall("x"))


@pytest.mark.parametrize(
    "options",
    [{"temperature": -1}, {"top_p": 0}, {"top_p": 1.1}, {"top_k": -2}, {"min_p": 2}, {"max_tokens": -1},
     {"repetition_penalty": 0}, {"presence_penalty": 3}, {"temperature": float("nan")}],
)  # fmt: skip
def test_bad_sampling_is_refused_by_name(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        SamplingParams(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"top_k": 2.5}, {"max_tokens": 2.5}, {"seed": "x"}])
def test_what_is_no_whole_number_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        SamplingParams(**options)


def test_prompts_of_an_array_and_of_broken_text(engine: Engine) -> None:
    array: Any = np.array(encode("Hello"))
    assert engine.submit(Request(prompt=array, sampling=GREEDY)).wait().text == finish(engine, "Hello").text
    with pytest.raises(UsageError, match="not valid Unicode"):
        engine.generate("a\udcff")


def drop_a_tensor(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def configure(folder: Path, **options: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | options))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (drop_a_tensor, r"1 tensors are missing.*layers\.1\.mlp\.up_proj"),
        (lambda folder: configure(folder, num_hidden_layers=3), r"9 tensors are missing.*layers\.2"),
        (lambda folder: configure(folder, intermediate_size=48), r"\d tensors.*wrong shape.*down_proj"),
        (lambda folder: configure(folder, hidden_size="big"), "hidden_size"),
        pytest.param(
            lambda folder: configure(folder, model_type="x", auto_map={"AutoConfig": "a.B"}),
            "custom code",
            marks=pytest.mark.one_process,
        ),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 99), "header"),
        (lambda folder: (folder / "generation_config.json").write_text('{"eos_token_id": "x"}'), "'x'"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), r"cannot be loaded as a tokenizer"),
    ],
)
def test_a_broken_model_is_refused_with_what_is_wrong(
    tiny_model: Path, tmp_path: Path, damage: Callable[[Path], object], said: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    damage(folder)
    with pytest.raises(UsageError, match=said):
        Engine(EngineConfig(model_dir=folder))


@pytest.mark.one_process
def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AiciError, match="cannot be loaded"):
        Engine(EngineConfig(model_dir=tmp_path))
