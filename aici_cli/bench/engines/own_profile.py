"""Measurements of our engine alone: the phases of a step, and shared prefixes."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from aici_base.ids import TokenId
from aici_cli.bench.engines.compare import Plan, Prompts
from aici_cli.bench.engines.ours import decode
from aici_cli.bench.engines.protocol import Output
from aici_cli.bench.engines.roofline import measure_roofline, print_roofline
from aici_controllers.catalog import guest_path
from aici_engine.config import Device, Dtype, EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import TokenEvent
from aici_engine.request import ControllerCall, Request, RequestHandle
from aici_runtime.client import Runtime, RuntimeConfig

_PAGE = 16
_TURN, _ANSWER, _NEXT = 2000, 32, 40
_SYSTEM, _QUESTION, _REQUESTS = 1000, 24, 32
_ANYTHING = r"(.|\n)*"
"""Never ends, so that all kinds of requests have the same number of tokens."""


def profile_engine(
    plan: Plan, dtypes: Sequence[Dtype], *, profile: bool, prefix: bool, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for dtype in dtypes:
        if profile:
            rows += _profile_steps(plan, dtype, say)
            rows += measure_roofline(plan, dtype, say)
        if prefix:
            say(f"{dtype}: {plan.rounds} chats of two turns, then requests with one system prompt")
            rows += _share_prefixes(plan, dtype)
    return rows


def _profile_steps(plan: Plan, dtype: Dtype, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yield medians over steps for every kind of sampling. `regex`: a controller that allows nearly all tokens."""
    prompts = Prompts(plan.model)
    config = EngineConfig(
        model_dir=plan.model,
        dtype=dtype,
        device=cast("Device", plan.device),
        num_threads=plan.threads,
        max_num_seqs=max(plan.batches),
        max_context=plan.num_prompt + plan.num_new,
        speculate="off",
    )
    with Runtime(RuntimeConfig(tokenizer=plan.model)) as runtime:
        runtime.wait_ready()
        regex = ControllerCall(runtime.mk_module(guest_path("regex").read_bytes()).module_id, _ANYTHING)
        with Engine(config, runtime=runtime) as engine:
            for batch in plan.batches:
                for kind, temperature, call in (("greedy", 0.0, None), ("top-k", 1.0, None), ("regex", 0.0, regex)):
                    say(f"{dtype}, batch {batch}, {kind}: {plan.rounds} rounds")
                    params = SamplingParams(temperature=temperature, max_tokens=plan.num_new, ignore_eos=call is None)
                    for number in range(-1, plan.rounds):
                        decode(engine, prompts.take(batch, plan.num_prompt), params, Output(batch), call)
                        if number < 0:
                            engine.profile()  # drop the warm-up
                    yield {"measure": "profile", "dtype": dtype, "batch": batch, "kind": kind, **engine.profile()}


def _share_prefixes(plan: Plan, dtype: Dtype) -> Iterator[dict[str, Any]]:
    """Measure the second turn of a chat, which repeats the first turn, and many requests with one system prompt."""
    prompts = Prompts(plan.model)
    num_pages = _REQUESTS * 2 * _SYSTEM // _PAGE  # enough without sharing
    config = EngineConfig(
        model_dir=plan.model,
        dtype=dtype,
        device=cast("Device", plan.device),
        num_threads=plan.threads,
        max_num_seqs=_REQUESTS,
        page_size=_PAGE,
        num_pages=num_pages,
    )
    with Engine(config) as engine:
        turns = []
        for _ in range(plan.rounds):
            first, answer = _turn(engine, _ids(prompts, _TURN))
            second, _ = _turn(engine, [*answer, *_ids(prompts, _NEXT)])
            turns.append({"first_s": first, "second_s": second})
        yield {"measure": "chat", "dtype": dtype, "turns": turns}
        system = _ids(prompts, _SYSTEM)
        _turn(engine, system)
        greedy = SamplingParams(temperature=0.0, max_tokens=4 * _REQUESTS, ignore_eos=True)
        asked = [Request(prompt=[*system, *_ids(prompts, _QUESTION)], sampling=greedy) for _ in range(_REQUESTS)]
        handles = [engine.submit(request) for request in asked]
        for handle in handles:
            _until_first(handle)
        used = round(engine.get_stats()["cache_usage"] * num_pages)
        for handle in handles:
            handle.abort()
        for handle in handles:
            handle.wait()
        apart = _REQUESTS * (-(-(_SYSTEM + _QUESTION) // _PAGE))
        yield {"measure": "system prompt", "dtype": dtype, "requests": _REQUESTS, "pages": used, "pages_apart": apart}


def _ids(prompts: Prompts, length: int) -> list[TokenId]:
    return [TokenId(token) for token in prompts.take(1, length)[0]]


def _turn(engine: Engine, prompt: list[TokenId]) -> tuple[float, list[TokenId]]:
    """Return the seconds to the first token, and the tokens of prompt and answer."""
    sampling = SamplingParams(temperature=0.0, max_tokens=_ANSWER, ignore_eos=True)
    end = engine.submit(Request(prompt=prompt, sampling=sampling)).wait()
    if end.error is not None:
        raise end.error
    assert end.timings.first_token_s is not None
    return end.timings.first_token_s, prompt + [token.token_id for token in end.tokens]


def _until_first(handle: RequestHandle) -> None:
    next(event for event in handle.events() if isinstance(event, TokenEvent))


def print_profile(rows: Sequence[Mapping[str, Any]]) -> None:
    profiles = [row for row in rows if row["measure"] == "profile"]
    if profiles:
        phases = list(profiles[0]["phases_s"])
        print("medians over steps: ms of the forward pass and of the rest, and µs per phase")
        print(
            f"{'dtype':<9} {'sampling':<8} {'batch':>5} {'forward':>8} {'rest':>6}  "
            + " ".join(f"{phase:>8}" for phase in phases)
        )
        for row in profiles:
            times = row["phases_s"]
            print(
                f"{row['dtype']:<9} {row['kind']:<8} {row['batch']:>5} {1e3 * times['forward']:>8.2f}"
                f" {1e3 * row['overhead_s']:>6.2f}  " + " ".join(f"{1e6 * times[phase]:>8.0f}" for phase in phases)
            )
    print_roofline([row for row in rows if row["measure"] == "roofline"])
    for row in rows:
        if row["measure"] == "chat":
            first, second = (statistics.median(turn[key] for turn in row["turns"]) for key in ("first_s", "second_s"))
            ratio = statistics.median(turn["first_s"] / turn["second_s"] for turn in row["turns"])
            print(
                f"{row['dtype']}: chat, first token of the first turn after {first:.3f} s, of the second after", end=""
            )
            print(f" {second:.3f} s ({ratio:.1f} times faster)")
        if row["measure"] == "system prompt":
            print(
                f"{row['dtype']}: {row['requests']} requests with one system prompt hold {row['pages']} pages,", end=""
            )
            print(f" {row['pages_apart']} without sharing")
