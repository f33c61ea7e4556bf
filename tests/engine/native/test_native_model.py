"""The C decoder against transformers, and against itself: equal bits for any batch, split, level and thread count."""

import copy
import functools
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.config import KVCacheDtype
from aici_engine.model.load import adopt
from aici_engine.native import library
from aici_engine.native.bindings import Format
from aici_engine.native.cpu_levels import features, levels
from aici_engine.native.model import NativeModel
from aici_engine.native.packed_weights import PackedWeights
from aici_engine.native.supported import unsupported_reason
from aici_engine.native.thread_pool import ThreadPool
from aici_engine.step_input import Chunk
from tests.engine.model.storage_support import fill_with_nan

ABLE = [level.name for level in levels() if level.needs <= features()]
pytestmark = pytest.mark.skipif(not ABLE, reason="no kernels for this processor")

SMALL: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "initializer_range": 0.3,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama-one-head": ("Llama", {"num_key_value_heads": 1}),
    "llama-wide-heads": ("Llama", {"head_dim": 48, "num_attention_heads": 2, "num_key_value_heads": 2}),
    "llama3-rotation": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
            }
        },
    ),
    "llama-yarn": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
            }
        },
    ),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("Mistral", {"sliding_window": 21}),
    "qwen2": ("Qwen2", {}),
    "qwen2-window": (
        "Qwen2", {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2, "layer_types": None},
    ),
    "qwen3": ("Qwen3", {}),
    "gemma2": (
        "Gemma2", {"sliding_window": 21, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 3.0},
    ),
}  # fmt: skip
PAGE_SIZE = 32
NUM_PAGES = 24


@functools.cache
def module_of(family: str) -> Any:
    prefix, extra = FAMILIES[family]
    torch.manual_seed(5)
    module = getattr(tf, f"{prefix}ForCausalLM")(getattr(tf, f"{prefix}Config")(**{**SMALL, **extra})).eval()
    for parameter in module.parameters():
        if parameter.dim() == 1:  # initial norms are ones, initial biases zeros
            parameter.data += 0.2 * torch.randn_like(parameter)
    return module


@functools.cache
def native(
    module: Any, weights: Format, *, level: str = "", num_threads: int = 1, kv_cache: KVCacheDtype = "auto"
) -> NativeModel:
    found = library.of_level(level or ABLE[-1])
    model = adopt(module, eos_tokens=frozenset({TokenId(2)}))
    assert unsupported_reason(model, page_size=PAGE_SIZE) is None
    return NativeModel(PackedWeights.of(model, weights), ThreadPool(found, num_threads), kv_cache)


class Sequence:
    """Random tokens."""

    def __init__(self, seed: int, length: int) -> None:
        numbers = np.random.default_rng(seed)
        self.tokens = [TokenId(int(token)) for token in numbers.integers(0, SMALL["vocab_size"], length)]


class Runner:
    """Runs sequences through one model, on shuffled pages.

    Rows that were never written are NaN, so that a read shows.
    """

    def __init__(self, model: NativeModel, sequences: list[Sequence]) -> None:
        self.model = model
        self.storage = model.make_storage(num_pages=NUM_PAGES, page_size=PAGE_SIZE)
        fill_with_nan(self.storage)
        pages = iter(np.random.default_rng(1).permutation(NUM_PAGES))
        self.sequences = sequences
        self.pages = [[PageId(int(next(pages))) for _ in range(0, len(s.tokens), PAGE_SIZE)] for s in sequences]
        self.done = [0] * len(sequences)
        self.rows: list[list[torch.Tensor]] = [[] for _ in sequences]

    def step(self, counts: dict[int, int]) -> None:
        """Run the next tokens of sequences; `counts`: number of tokens by sequence."""
        chunks = []
        for i, count in counts.items():
            start, end = self.done[i], self.done[i] + count
            pages = self.pages[i][: -(-end // PAGE_SIZE)]
            chunks.append(Chunk(SeqId(i), self.sequences[i].tokens[start:end], start, pages, count))
            self.done[i] = end
        rows = iter(torch.as_tensor(self.model.forward(self.storage, chunks)).clone())
        for i, count in counts.items():
            self.rows[i] += [next(rows) for _ in range(count)]

    def logits(self, i: int) -> torch.Tensor:
        return torch.stack(self.rows[i])


def whole(model: NativeModel, sequence: Sequence) -> torch.Tensor:
    runner = Runner(model, [sequence])
    runner.step({0: len(sequence.tokens)})
    return runner.logits(0)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers(family: str) -> None:
    module, sequence = module_of(family), Sequence(3, 75)
    module.set_attn_implementation("eager")
    with torch.inference_mode():
        theirs = module(torch.tensor([sequence.tokens])).logits[0]
    torch.testing.assert_close(whole(native(module, Format.F32), sequence), theirs, rtol=1e-3, atol=1e-3)
    for weights in (Format.BF16, Format.INT8):
        near = whole(native(module, weights), sequence)
        assert torch.nn.functional.cosine_similarity(near, theirs).mean() > 0.99


def bf16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def attend_in_bf16(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, scaling: float, **_: Any
) -> tuple[torch.Tensor, None]:
    """Attention as in the kernels: after every block of 64 keys, a new maximum scales down the earlier sums."""
    key, value = (bf16(x).repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    unseen = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool).triu(1)
    scores = (bf16(query * scaling) @ key.transpose(2, 3)).masked_fill(unseen, -torch.inf)
    most, total, sums = scores[..., :1], torch.zeros(1), torch.zeros(1)
    for part, values in zip(scores.split(64, 3), value.split(64, 2), strict=True):
        before, most = most, torch.maximum(most, part.amax(-1, keepdim=True))
        weights, shrink = (part - most).exp(), (before - most).exp()
        total, sums = total * shrink + weights.sum(-1, keepdim=True), sums * shrink + bf16(weights) @ values
    return (sums / total).transpose(1, 2), None


def test_with_bf16_all_that_is_multiplied_is_rounded_and_nothing_else() -> None:
    module, sequence = copy.deepcopy(module_of("llama-biases")), Sequence(3, 150)
    kernels = whole(native(module, Format.BF16), sequence)
    for part in module.modules():
        if isinstance(part, torch.nn.Linear | torch.nn.Embedding):
            part.weight.data = bf16(part.weight.data)
        if isinstance(part, torch.nn.Linear):
            part.register_forward_pre_hook(lambda _, inputs: (bf16(inputs[0]),))
    tf.AttentionInterface.register("bf16", attend_in_bf16)
    module.set_attn_implementation("bf16")
    with torch.inference_mode():
        rounded = module(torch.tensor([sequence.tokens])).logits[0]
    # A number between two bf16 numbers may round either way, rarely.
    assert ((kernels - rounded).norm(dim=1) / rounded.norm(dim=1)).median() < 1e-5


FORMS: list[tuple[Format, KVCacheDtype]] = [
    *((weights, "auto") for weights in list(Format)[:4]),
    *((weights, "int8") for weights in (Format.F32, Format.INT4)),
]


@pytest.mark.parametrize(("weights", "kv_cache"), FORMS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_row_depends_on_its_sequence_alone(weights: Format, kv_cache: KVCacheDtype, data: st.DataObject) -> None:
    model = native(module_of("qwen2-window"), weights, kv_cache=kv_cache)
    sequences = [Sequence(seed, length) for seed, length in enumerate(data.draw(lengths))]
    runner = Runner(model, sequences)
    while left := {
        i: len(s.tokens) - runner.done[i] for i, s in enumerate(sequences) if len(s.tokens) > runner.done[i]
    }:
        chosen = data.draw(st.lists(st.sampled_from(sorted(left)), min_size=1, unique=True))
        runner.step({i: data.draw(st.integers(1, left[i])) for i in chosen})
    for i, sequence in enumerate(sequences):
        assert torch.equal(runner.logits(i), whole(model, sequence))


lengths = st.lists(st.integers(1, 100), min_size=1, max_size=5)


@pytest.mark.parametrize(("weights", "kv_cache"), FORMS)
@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_levels_and_threads_change_no_bit(family: str, weights: Format, kv_cache: KVCacheDtype) -> None:
    module, sequence = module_of(family), Sequence(4, 90)
    expected = whole(native(module, weights, kv_cache=kv_cache), sequence)
    for level in ABLE:
        assert torch.equal(whole(native(module, weights, level=level, kv_cache=kv_cache), sequence), expected), level
    for _ in range(5):
        assert torch.equal(whole(native(module, weights, num_threads=3, kv_cache=kv_cache), sequence), expected)


@pytest.mark.parametrize("family", ["llama", "qwen2-window", "gemma2"])
def test_keys_and_values_in_bytes_lose_little_and_take_half(family: str) -> None:
    module, sequence = module_of(family), Sequence(4, 300)
    exact, rounded = native(module, Format.F32), native(module, Format.F32, kv_cache="int8")
    expected, got = whole(exact, sequence), whole(rounded, sequence)
    # The scores of random models are large, which makes the loss far larger than in models that were trained.
    assert 0 < (got - expected).norm() / expected.norm() < 0.1
    bf16 = native(module, Format.BF16)
    assert rounded.token_bytes < bf16.token_bytes < exact.token_bytes


def test_with_keys_and_values_in_bytes_what_is_no_number_is_not_lost() -> None:
    module = copy.deepcopy(module_of("llama"))
    module.model.layers[1].self_attn.v_proj.weight.data[0, 3] = float("nan")
    assert whole(native(module, Format.F32, kv_cache="int8"), Sequence(1, 20)).isnan().all()


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_broken_model_does_not_look_sound(family: str) -> None:
    """Capped logits must be NaN too."""
    module = copy.deepcopy(module_of(family))  # module_of returns a shared module
    module.model.norm.weight.data.fill_(float("nan"))
    model = native(module, Format.F32)
    assert whole(model, Sequence(1, 20)).isnan().all()


@pytest.mark.parametrize("weights", list(Format)[:4])
def test_capped_scores_of_what_is_no_number_are_none(weights: Format) -> None:
    module = copy.deepcopy(module_of("gemma2"))
    module.model.layers[1].self_attn.q_proj.weight.data[0, 3] = float("nan")
    assert whole(native(module, weights), Sequence(1, 20)).isnan().all()
