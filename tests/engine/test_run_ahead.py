"""Passes that begin before their tokens are known: clients and guests hear the same as without."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from aici_base.ids import SeqId, TokenId
from aici_engine.ahead_executor import AheadExecutor
from aici_engine.cache.storage import KVStorage, LayerShape
from aici_engine.config import SamplingParams
from aici_engine.request import ControllerCall
from aici_engine.run_ahead import RunAhead
from aici_engine.sample.device_sampler import DeviceSampler
from aici_engine.sample.torch_pipeline import TensorMasks
from aici_engine.step_input import PENDING, Chunk, StepInput
from aici_runtime.wire import Pre
from tests.engine.loop_bench import SIZES, LoopBench, ReadyRuntime, host_sampler
from tests.engine.null_executor import NullExecutor, by_all_tokens
from tests.engine.programs import Program
from tests.engine.support import EOS, EOT, VOCAB_SIZE, Guest, encode
from tests.engine.test_flights import outcome, requests

CPU = torch.device("cpu")
KEPT = EOT


class NullModel:
    """A model without tensors, on a device whose memory of logits is one: each pass overwrites the last."""

    def __init__(self) -> None:
        self.layers: list[LayerShape] = []
        self.vocab_size, self.context, self.eos_tokens = VOCAB_SIZE, 4096, frozenset({EOS})
        self.name, self.dtype, self.device, self.states_size, self.same_bits = "null", torch.float32, CPU, 0, False
        self.token_bytes = self.weight_bytes = 1
        self._logits = torch.zeros(64, VOCAB_SIZE)
        self._pages = NullExecutor(num_pages=400, row=by_all_tokens)
        self.num_passes = 0

    def make_storage(self, *, num_pages: int, page_size: int) -> KVStorage:
        return _Copies(self._pages, page_size)

    def forward(self, storage: KVStorage, chunks: Sequence[Chunk], final_states: Any = None) -> torch.Tensor:
        return self._run(chunks)

    def forward_ahead(self, storage: KVStorage, chunks: Sequence[Chunk], tokens: torch.Tensor) -> torch.Tensor:
        assert all(list(chunk.tokens) == [PENDING] for chunk in chunks)
        known = [TokenId(token) for token in tokens.tolist()]
        return self._run([chunk._replace(tokens=[token]) for chunk, token in zip(chunks, known, strict=True)])

    def warm_up(self, storage: KVStorage) -> None:
        """Nothing is compiled."""

    def _run(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        self.num_passes += 1
        rows = self._pages.begin(StepInput(chunks)).logits()
        self._logits.fill_(torch.nan)
        self._logits[: len(rows)] = rows
        return self._logits[: len(rows)]


class _Copies(KVStorage):
    def __init__(self, pages: NullExecutor, page_size: int) -> None:
        super().__init__([], [], page_size=page_size)
        self._lists = pages.pages

    def copy_page(self, source: Any, target: Any) -> None:
        self._lists[target] = list(self._lists[source])


def run(
    asked: list[dict[str, Any]], *, ahead: bool, num_pages: int = 400, model: NullModel | None = None, **options: Any
) -> tuple[Any, Any, Any]:
    """Return what clients hear, what guests are told, and the executor."""
    executor = AheadExecutor(model or NullModel(), num_pages=num_pages, page_size=4)
    executor.goes_ahead = ahead
    sampler = DeviceSampler(host_sampler(), TensorMasks(**SIZES, device=CPU), CPU)
    runtime = ReadyRuntime({"program": Program})
    bench = LoopBench(executor, runtime, sampler, **({"calm_rounds": 3} | options))
    heard = [outcome(events) for events in bench.run(asked)]
    return heard, sorted(repr((guest.argument, guest.told)) for guest in runtime.all), executor


def sampled_on_the_device() -> list[dict[str, Any]]:
    return [request for request in requests() if request["sampling"].logprobs is None]


@pytest.mark.parametrize("calm_rounds", [1, 3])
@pytest.mark.parametrize("num_pages", [400, 26])
@pytest.mark.parametrize("boldly", [False, True])
def test_clients_and_guests_hear_the_same(
    num_pages: int, calm_rounds: int, boldly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`boldly`: each step is guessed, also where guests force tokens, take tokens back, fork and wait."""
    options: dict[str, Any] = {"num_pages": num_pages, "calm_rounds": calm_rounds}
    *expected, alone = run(sampled_on_the_device(), ahead=False, **options)
    if boldly:
        monkeypatch.setattr(RunAhead, "_has_other_work", lambda *_, **__: False)
        monkeypatch.setattr(RunAhead, "_learn", lambda _: None)
    *found, executor = run(sampled_on_the_device(), ahead=True, **options)
    assert found == expected
    assert alone.num_guessed == 0
    assert not boldly or 0 < executor.num_right < executor.num_guessed


def decodes(num: int, **sampling: Any) -> list[dict[str, Any]]:
    return [
        {"prompt": encode("abc"[: 1 + k % 3]), "limit": 31 + k % 3, "sampling": SamplingParams(seed=k, **sampling)}
        for k in range(num)
    ]


def test_decoding_sequences_are_guessed_right() -> None:
    heard, _, executor = run(decodes(5, ignore_eos=True), ahead=True)
    assert all(len(told[()][2]) == 30 for told in heard)
    # The pass of the prompts is not guessed, and behind the last token there is none.
    assert executor.num_guessed == executor.num_right == 5 * 29
    assert executor._model.num_passes == 30


def test_sequences_that_end_early_cost_their_rows_alone() -> None:
    *expected, _ = run(decodes(6), ahead=False)
    *found, executor = run(decodes(6), ahead=True)
    assert found == expected
    assert executor.num_guessed - executor.num_right <= 6 < executor.num_right


def test_a_calm_guest_is_guessed_and_one_that_forces_is_not() -> None:
    call = ControllerCall("program", [("any", 20)])
    calm = {"sampling": SamplingParams(seed=1, max_tokens=40), "controller": call}
    *expected, _ = run([dict(calm)], ahead=False, calm_rounds=2)
    *found, executor = run([dict(calm)], ahead=True, calm_rounds=2)
    assert found == expected
    assert executor.num_right >= 15
    forcing = [{"sampling": SamplingParams(seed=1), "controller": ControllerCall("program", [("force", "ab")] * 5)}]
    assert run(forcing, ahead=True, calm_rounds=99)[2].num_guessed == 0


class GoesOnAfterEos(Guest):
    """Allows free tokens, then an EOS alone, then free tokens again."""

    num_masks = 0

    def init_prompt(self, prompt: list[TokenId]) -> None:
        self.num_masks = 0

    def pre(self) -> Pre:
        return Pre(suspend=False, num_forks=int(self.num_masks < 30), ff_tokens=())

    def mid(self) -> Any:
        self.num_masks += 1
        return [EOS] if self.num_masks == 12 else range(32, 127)


def test_a_guess_has_no_eos_where_the_model_sees_its_substitute() -> None:
    asked = {"sampling": SamplingParams(seed=1), "controller": ControllerCall("program", [])}
    heard, executors = [], []
    for ahead in (False, True):
        executor = AheadExecutor(NullModel(), num_pages=400, page_size=4)
        executor.goes_ahead = ahead
        bench = LoopBench(
            executor,
            ReadyRuntime({"program": GoesOnAfterEos}),
            DeviceSampler(host_sampler(), TensorMasks(**SIZES, device=CPU), CPU),
            calm_rounds=2,
            kept_eos=KEPT,
        )
        heard.append([outcome(events) for events in bench.run([{**asked, "prompt": encode("Hello")}])])
        executors.append(executor)
    assert heard[0] == heard[1]
    [told] = heard[1]
    assert EOS in [token.token_id for token in told[()][2]]
    # The guess with the EOS is wrong, all others of the calm guest are right.
    assert 1 <= executors[1].num_guessed - executors[1].num_right <= 2 < 20 <= executors[1].num_right


def test_rows_for_the_host_are_not_overwritten() -> None:
    """Log-probabilities are computed by the host, so no pass begins before it has the row."""

    def asked() -> list[dict[str, Any]]:
        return [*decodes(2, ignore_eos=True), {"sampling": SamplingParams(seed=9, max_tokens=9, logprobs=2)}]

    *expected, _ = run(asked(), ahead=False)
    *found, _ = run(asked(), ahead=True)
    assert found == expected


def test_a_wrong_guess_is_computed_again() -> None:
    model = NullModel()
    executor = AheadExecutor(model, num_pages=40, page_size=4)

    class Tokens:
        on_device = torch.tensor([65])

        def read(self) -> list[int]:
            return [65]

    wrong = StepInput([Chunk(SeqId(1), [TokenId(66)], 1, [0], 1)])
    executor.begin(StepInput([Chunk(SeqId(1), [TokenId(64)], 0, [0], 1)]))
    executor.go_ahead(StepInput([Chunk(SeqId(1), [PENDING], 1, [0], 1)]), Tokens(), [0])
    rows = executor.begin(wrong).logits()
    assert (executor.num_guessed, executor.num_right) == (1, 0)
    assert torch.equal(rows[0], by_all_tokens([64, 66]))


def test_a_pass_that_cannot_begin_ahead_fails_nobody() -> None:
    class Short(NullModel):
        def forward_ahead(self, storage: KVStorage, chunks: Sequence[Chunk], tokens: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("out of memory")

    *expected, _ = run(decodes(3), ahead=False)
    *found, executor = run(decodes(3), ahead=True, model=Short())
    assert found == expected
    assert executor.num_right == 0
