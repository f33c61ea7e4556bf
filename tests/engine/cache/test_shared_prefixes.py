"""Sequences with the same beginning share computed pages: the engine's loop over a model that reads its pages."""

import itertools
import math
import queue
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from aici_base.errors import UsageError
from aici_base.ids import SeqId, TokenId
from aici_engine.cache.kvcache import KVCache
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.control.runtime import NoRuntime
from aici_engine.control.session import GuestSession
from aici_engine.engine import Engine
from aici_engine.event_output import EventOutput
from aici_engine.events import Event, FinishEvent, ScoreEvent
from aici_engine.loop import Loop
from aici_engine.native.library import describe
from aici_engine.prefill_budget import PrefillBudget
from aici_engine.request import ControllerCall, Request
from aici_engine.sample.masks import MaskApplier
from aici_engine.sample.sampler import HostSampler
from aici_engine.scheduler import Scheduler
from aici_engine.sequences.sequence import Sequence as EngineSequence
from tests.engine.null_executor import NullExecutor
from tests.engine.programs import Program, by_fork
from tests.engine.support import EOS, VOCAB_SIZE, ScriptedRuntime, encode
from tests.support.random_llama import write_random_llama

NUM_BYTES = 256


def next_token(tokens: Sequence[int]) -> int:
    """Return the model's next token, which depends on all tokens and their order."""
    return hash(tuple(tokens)) % NUM_BYTES


def continued(prompt: Sequence[int], num_tokens: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


def likely(tokens: Sequence[int]) -> torch.Tensor:
    """Return the logits after `tokens`: the next token is the likeliest."""
    row = torch.zeros(VOCAB_SIZE)
    row[next_token(tokens)] = 9.0
    return row


class Bench:
    """The components of an engine. A batch of requests has a loop of its own, and all requests arrive together."""

    def __init__(self, num_pages: int, page_size: int, *, prefix_cache: bool = True, max_num_seqs: int = 32) -> None:
        self.executor = NullExecutor(num_pages=num_pages, page_size=page_size, row=likely)
        self.cache = KVCache(num_pages=num_pages, page_size=page_size, prefix_cache=prefix_cache)
        self.scheduler = Scheduler(
            self.cache, max_num_seqs=max_num_seqs, max_batch_tokens=256, prefill_budget=PrefillBudget(None)
        )
        self.peak = 0
        self.broken: AssertionError | None = None
        self._ids = itertools.count(1)

    def run(self, prompts: Sequence[Sequence[int]], num_tokens: int, **more: Any) -> list[list[Event]]:
        told: list[queue.SimpleQueue[Event]] = [queue.SimpleQueue() for _ in prompts]
        loop = self._loop()
        for prompt, events in zip(prompts, told, strict=True):
            loop.submit(
                EngineSequence(
                    SeqId(next(self._ids)), prompt=list(map(TokenId, prompt)), controller=None,
                    limit=len(prompt) + num_tokens, sink=events.put, submitted_at=0.0,
                    sampling=SamplingParams(temperature=0.0, max_tokens=num_tokens), **more,
                )
            )  # fmt: skip
        thread = threading.Thread(target=loop.run)
        thread.start()
        try:
            return [_until_end(events) for events in told]
        finally:
            loop.stop()
            thread.join()
            self.cache.check_integrity()
            assert (self.cache.usage, self.broken) == (0.0, None)

    def ask(self, prompts: Sequence[Sequence[int]], num_tokens: int = 4) -> list[FinishEvent]:
        """Run the prompts, and check the answers."""
        ends = [events[-1] for events in self.run(prompts, num_tokens)]
        for prompt, end in zip(prompts, ends, strict=True):
            assert isinstance(end, FinishEvent)
            assert [token.token_id for token in end.tokens] == continued(prompt, num_tokens)
        return cast("list[FinishEvent]", ends)

    def _loop(self) -> Loop:
        output = EventOutput([bytes([byte]) for byte in range(NUM_BYTES)], self._look)
        return Loop(
            executor=self.executor,
            cache=self.cache,
            scheduler=self.scheduler,
            session=GuestSession(NoRuntime(), output, num_logits=VOCAB_SIZE, max_guests=8, eos_tokens=frozenset({EOS}),
                            new_id=lambda: SeqId(0), calm_rounds=8),
            sampler=HostSampler(MaskApplier(vocab_size=0, eos_token=EOS, all_eos=[EOS], num_logits=VOCAB_SIZE)),
            output=output,
            eos_tokens=frozenset({EOS}),
            eos_for_guests=EOS,
            kept_eos=None,
        )  # fmt: skip

    def _look(self) -> None:
        """Check the cache after a step with events. The engine only logs an exception, so the error is kept."""
        try:
            self.cache.check_integrity()
        except AssertionError as error:
            self.broken = error
        self.peak = max(self.peak, round(self.cache.usage * self.cache.num_pages))


def _until_end(events: "queue.SimpleQueue[Event]") -> list[Event]:
    told = [events.get(timeout=20)]
    while not isinstance(told[-1], FinishEvent):
        told.append(events.get(timeout=20))
    assert told[-1].error is None
    return told


def words(seed: int, num_tokens: int) -> list[int]:
    return random.Random(seed).choices(range(NUM_BYTES), k=num_tokens)


def test_a_turn_of_a_chat_computes_what_is_new() -> None:
    bench = Bench(100, 16)
    question = words(1, 200)
    [first] = bench.ask([question], 50)
    assert (bench.executor.num_computed, first.usage.cached_tokens) == (249, 0)
    said = [*question, *(token.token_id for token in first.tokens)]
    bench.executor.num_computed = 0
    [second] = bench.ask([[*said, *words(2, 30)]], 10)
    # Of 249 tokens, 240 are in complete pages.
    assert second.usage.cached_tokens == 240
    assert bench.executor.num_computed == 280 + 9 - 240


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_a_system_prompt_of_many_requests_at_once_is_there_once(prefix_cache: bool) -> None:
    bench = Bench(3000, 16, prefix_cache=prefix_cache)
    system = words(1, 1000)
    ends = bench.ask([[*system, *words(seed, 20)] for seed in range(32)], 40)
    cached = [end.usage.cached_tokens for end in ends]
    # The 1,000 common tokens have 62 complete pages; the 59 further tokens of a sequence need at most 5.
    if prefix_cache:
        assert cached == [0] + [992] * 31
        assert bench.executor.num_computed == 992 + 32 * (8 + 20 + 39)
        assert 62 + 32 * 3 < bench.peak <= 62 + 32 * 5
    else:
        assert cached == [0] * 32
        assert bench.executor.num_computed == 32 * 1059
        assert bench.peak > 62 + 32 * 5


def test_the_same_prompt_again_computes_its_last_page_at_least() -> None:
    for num_tokens, num_cached in ((33, 32), (32, 16), (16, 0), (1, 0)):
        bench = Bench(100, 16)
        prompt = words(1, num_tokens)
        bench.ask([prompt])
        [again] = bench.ask([prompt])
        assert again.usage.cached_tokens == num_cached


def test_a_prompt_that_is_scored_is_computed_where_it_is() -> None:
    bench = Bench(100, 16)
    prompt = words(1, 100)
    bench.ask([prompt])
    for score_from, num_cached in ((0, 0), (1, 0), (17, 16), (64, 48), (65, 64), (99, 96)):
        [[*told, end]] = bench.run([prompt], 0, score_from=score_from)
        [scores] = [event.scores for event in told if isinstance(event, ScoreEvent)]
        assert len(scores) == 100 - score_from
        for at, score in enumerate(scores, score_from):
            assert (score.logprob or 0.0) == pytest.approx(_score(prompt, at), abs=1e-3)
        assert isinstance(end, FinishEvent)
        assert end.usage.cached_tokens == num_cached


def _score(prompt: list[int], at: int) -> float:
    """One token has logit 9, the remaining 299 tokens have 0."""
    return 0.0 if at == 0 else 9.0 * (next_token(prompt[:at]) == prompt[at]) - math.log(math.exp(9) + VOCAB_SIZE - 1)


@pytest.mark.parametrize("seed", range(4))
def test_with_few_pages_everybody_reads_what_belongs_to_them(seed: int) -> None:
    """Prompts with many common beginnings, and more prompts than the cache has room for."""
    chance = random.Random(seed)
    bench = Bench(24, 4, max_num_seqs=6)
    prompts: list[list[int]] = [[]]
    for _ in range(40):
        begin = chance.choice(prompts)
        prompts.append(
            [*begin[: chance.randint(0, len(begin))], *words(chance.randrange(1 << 30), chance.randint(1, 20))][:60]
        )
    for num in (20, 12, 8):
        asked = chance.choices(prompts[1:], k=num)
        ends = bench.ask(asked, chance.randint(1, 30))
        assert all(end.usage.cached_tokens < len(prompt) for end, prompt in zip(ends, asked, strict=True))
    assert bench.scheduler.num_preemptions > 0


def test_texts_and_logits_are_the_same_with_reuse(tiny_model: Path) -> None:
    system = encode("You are a careful assistant that answers in few words. ")
    prompts = [[*system, *encode(text)] for text in ("Hello!", "Who are you?", "Hello, who is there?")]
    sampling = SamplingParams(temperature=1.0, seed=7, max_tokens=24, logprobs=3)
    ends: dict[bool, list[FinishEvent]] = {}
    for prefix_cache in (False, True):
        config = EngineConfig(
            model_dir=tiny_model, num_pages=200, page_size=4, max_batch_tokens=48, prefix_cache=prefix_cache
        )
        with Engine(config) as engine:
            ends[prefix_cache] = [
                engine.submit(Request(prompt=prompt, sampling=sampling)).wait() for prompt in prompts * 2
            ]
            handles = [engine.submit(Request(prompt=prompt, sampling=sampling)) for prompt in prompts * 2]
            ends[prefix_cache] += [handle.wait() for handle in handles]
    assert sum(end.usage.cached_tokens for end in ends[False]) == 0
    assert all(end.usage.cached_tokens >= 48 for end in ends[True][1:])
    for without, with_reuse in zip(ends[False], ends[True], strict=True):
        assert with_reuse.text == without.text
        for one, other in zip(with_reuse.tokens, without.tokens, strict=True):
            assert one.token_id == other.token_id
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)


def test_keys_and_values_in_bytes_are_shared_and_give_the_same_bits(tmp_path: Path) -> None:
    if not describe().level:
        pytest.skip("no kernels for this processor")
    write_random_llama(tmp_path, num_layers=2, hidden=256, intermediate=256, context=512)
    prompt = encode("A beginning that is long enough for several pages of sixteen tokens.")
    request = Request(prompt=prompt, sampling=SamplingParams(temperature=1.0, seed=3, max_tokens=40, logprobs=2))
    with Engine(EngineConfig(model_dir=tmp_path, num_pages=40, page_size=16, kv_cache_dtype="int8")) as engine:
        first, again = (engine.submit(request).wait() for _ in range(2))
    with Engine(EngineConfig(model_dir=tmp_path, num_pages=40, page_size=16)) as engine:
        other = engine.submit(request).wait()
    assert (first.usage.cached_tokens, again.usage.cached_tokens) == (0, 64)
    assert [(token.token_id, token.logprob) for token in again.tokens] == [
        (token.token_id, token.logprob) for token in first.tokens
    ]
    assert [token.logprob for token in other.tokens] != [token.logprob for token in first.tokens]


def test_without_kernels_keys_and_values_in_bytes_are_refused(tiny_model: Path) -> None:
    """The heads of the model are too small for the kernels."""
    config = EngineConfig(model_dir=tiny_model, num_pages=40, kv_cache_dtype="int8")
    with pytest.raises(UsageError, match="need the kernels"):
        Engine(config)


def test_another_salt_finds_nothing(tiny_model: Path) -> None:
    prompt = encode("x" * 50)
    with Engine(EngineConfig(model_dir=tiny_model, num_pages=100, page_size=4)) as engine:

        def cached(salt: str | None) -> int:
            request = Request(prompt=prompt, sampling=SamplingParams(max_tokens=1), cache_salt=salt)
            return engine.submit(request).wait().usage.cached_tokens

        assert [cached(salt) for salt in (None, "a", "b", "a", None)] == [0, 0, 0, 48, 48]
        assert engine.get_stats()["cached_tokens"] == 96


def test_controllers_that_go_back_into_what_others_read(tiny_model: Path) -> None:
    """Backtrack into the output, into a shared page of the prompt, and to a page's beginning, several at once."""
    programs = [
        [("any", 9), ("back", 7, "xyz"), ("any", 4)],
        [("any", 2), ("back", 12, "ab"), ("any", 6)],
        [("any", 4), ("back", 12, ""), ("any", 9)],
        [("any", 6), ("fork", [[("any", 3)], [("back", 9, "Q"), ("any", 3)]])],
    ]
    texts: dict[bool, list[str]] = {}
    for prefix_cache in (False, True):
        config = EngineConfig(
            model_dir=tiny_model, num_pages=100, page_size=4, max_batch_tokens=40, prefix_cache=prefix_cache
        )
        with Engine(config, runtime=ScriptedRuntime({"program": Program})) as engine:
            handles = [
                engine.submit(
                    Request(
                        prompt="They say the same.",
                        sampling=SamplingParams(temperature=0.0),
                        controller=ControllerCall("program", list(program)),
                    )
                )
                for program in programs * 4
            ]
            told = [by_fork(list(handle.events())) for handle in handles]
            texts[prefix_cache] = [fork.end.text for forks in told for fork in forks.values() if fork.end]
            cached = engine.get_stats()["cached_tokens"]
            engine._components.cache.check_integrity()
        assert (cached > 0) is prefix_cache
    assert texts[True] == texts[False]
