"""Tiny random models of many families: our attention against eager attention of transformers, for single sequences, on
pages that another sequence computed, and in ragged batches.

A new model family gets an entry in FAMILIES, and in NATIVE if the C decoder runs the family.
"""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

from aici_base.errors import UsageError
from aici_base.ids import SeqId, TokenId
from aici_engine.cache.kvcache import KVCache
from aici_engine.model.interface import Model
from aici_engine.model.load import adopt, load_model
from aici_engine.native.bindings import Format
from aici_engine.native.library import load
from aici_engine.native.model import NativeModel
from aici_engine.native.packed_weights import PackedWeights
from aici_engine.native.paged_attention import PagedKernel
from aici_engine.native.supported import unsupported_reason
from aici_engine.native.thread_pool import ThreadPool
from aici_engine.step_input import Chunk
from tests.engine.model.storage_support import fill_with_nan

SMALL: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "initializer_range": 0.2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LONGROPE: dict[str, Any] = {
    "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
    "short_factor": [1.1, 1.2, 1.3, 1.4, 1.5, 1.6], "long_factor": [3.0] * 6, "original_max_position_embeddings": 64,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-mha": ("Llama", {"num_key_value_heads": 4}),
    "llama-head-dim": ("Llama", {"head_dim": 24}),
    "qwen2": ("Qwen2", {}),
    "qwen2-window": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2, "layer_types": None},
    ),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "mistral": ("Mistral", {"sliding_window": 5}),
    "gemma": ("Gemma", {"head_dim": 16}),
    "gemma2": (
        "Gemma2",
        {"head_dim": 16, "sliding_window": 6, "attn_logit_softcapping": 1.5, "query_pre_attn_scalar": 16},
    ),
    "gemma3": ("Gemma3", {"head_dim": 16, "sliding_window": 6, "query_pre_attn_scalar": 20}),
    "gemma3-pictures": (
        "Gemma3Pictures",
        {
            "text_config": {**SMALL, "head_dim": 16, "sliding_window": 6, "query_pre_attn_scalar": 20},
            "vision_config": {
                "hidden_size": 32,
                "intermediate_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 28,
                "patch_size": 14,
            },
            "mm_tokens_per_image": 4,
            "boi_token_index": 97,
            "eoi_token_index": 98,
            "image_token_index": 99,
        },
    ),
    "gpt_oss": ("GptOss", {"head_dim": 16, "sliding_window": 6, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "phi": ("Phi", {"partial_rotary_factor": 0.5}),
    "phi3": ("Phi3", {}),
    "phi3-window": ("Phi3", {"sliding_window": 6}),
    "phi3-partial": ("Phi3", {"rope_parameters": LONGROPE}),
    "olmo2": ("Olmo2", {}),
    "olmo3": ("Olmo3", {"sliding_window": 6}),
    "granite": (
        "Granite",
        {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.1,
            "residual_multiplier": 0.6,
            "logits_scaling": 2.0,
            "rms_norm_eps": 0.01,
        },
    ),
    "smollm3": ("SmolLM3", {}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "sliding_window": 9}),
    "gpt_neox": ("GPTNeoX", {}),
    "gpt2": ("GPT2", {}),
}
GPT2 = {"vocab_size": 97, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 128, "initializer_range": 0.3}
NATIVE = {
    *("llama", "llama-mha", "mistral", "qwen2", "qwen2-window", "qwen3", "gemma", "gemma2", "gemma3"),
    "gemma3-pictures",
    *("phi3", "phi3-partial", "phi3-window", "olmo2", "olmo3", "granite", "smollm3", "gpt2"),
}
"""Families that the C decoder runs."""
LENGTHS = (1, 3, 19, 43, 16)
PAGE_SIZE = 16
NEAR = {"atol": 2e-4, "rtol": 2e-4}


def build(family: str, **more: Any) -> Any:
    prefix, extra = FAMILIES[family]
    class_name = {"GPT2": "GPT2LMHeadModel", "Gemma3Pictures": "Gemma3ForConditionalGeneration"}.get(
        prefix, f"{prefix}ForCausalLM"
    )
    config_name = {"Gemma3": "Gemma3TextConfig", "Gemma3Pictures": "Gemma3Config"}.get(prefix, f"{prefix}Config")
    options = {"GPT2": GPT2, "Gemma3Pictures": extra}.get(prefix, {**SMALL, **extra, **more})
    torch.manual_seed(5)
    model = getattr(tf, class_name)(getattr(tf, config_name)(**options)).eval()
    for name, parameter in model.named_parameters():
        # Initial sinks are garbage, norms one or zero, biases zero: random values make them matter.
        if name.endswith("sinks"):
            torch.nn.init.normal_(parameter)
        elif parameter.dim() == 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
    return model


class Runner:
    """Runs chunks of sequences through a paged model, in any batch."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.storage = model.make_storage(num_pages=64, page_size=PAGE_SIZE)
        fill_with_nan(self.storage)
        self.cache = KVCache(num_pages=64, page_size=PAGE_SIZE)
        # Page 0 stays NaN: another sequence owns the page.
        self.cache.add(SeqId(999))
        self.cache.reserve(SeqId(999), 1)

    def step(self, work: list[tuple[SeqId, list[TokenId], int, int]]) -> torch.Tensor:
        chunks = []
        for seq_id, tokens, start, end in work:
            if not self.cache.holds(seq_id):
                self.cache.add(seq_id)
            assert self.cache.reserve(seq_id, end)
            chunks.append(Chunk(seq_id, tokens[start:end], start, self.cache.page_table(seq_id), 1))
        for copy in self.cache.take_copies():
            self.storage.copy_page(*copy)
        logits = torch.as_tensor(self.model.forward(self.storage, chunks))
        for seq_id, tokens, _, end in work:
            self.cache.advance(seq_id, tokens, end)
        return logits


def sequences() -> list[list[TokenId]]:
    generator = torch.Generator().manual_seed(3)
    return [[TokenId(t) for t in torch.randint(3, 97, (n,), generator=generator).tolist()] for n in LENGTHS]


def pool() -> ThreadPool:
    library = load()
    if library is None:
        pytest.skip("no kernels for this processor")
    return ThreadPool(library, 2)


class CountedKernel(PagedKernel):
    num_calls = 0

    def __call__(self, *args: Any, **options: Any) -> torch.Tensor:
        self.num_calls += 1
        return super().__call__(*args, **options)


@pytest.mark.parametrize(
    ("family", "by"),
    [
        *((family, "torch") for family in FAMILIES),
        *((family, "kernels") for family in sorted(NATIVE)),
        *((family, "both") for family in sorted({*FAMILIES} - NATIVE | {"gemma2", "mistral"})),
    ],
)
def test_logits_are_those_of_eager_attention(family: str, by: str, tmp_path: Path) -> None:
    module = build(family)
    module.save_pretrained(tmp_path)
    module.set_attn_implementation("eager")
    prompts = sequences()
    with torch.inference_mode():
        wanted = [module(torch.tensor([prompt]), use_cache=False).logits[0] for prompt in prompts]
    kernel = CountedKernel(pool()) if by == "both" else None
    theirs = load_model(tmp_path, dtype="float32", kernel=kernel)
    assert (unsupported_reason(theirs, page_size=PAGE_SIZE) is None) == (family in NATIVE)
    model = NativeModel(PackedWeights.of(theirs, Format.F32), pool()) if by == "kernels" else theirs

    alone = Runner(model)
    for i, prompt in enumerate(prompts):
        [got] = alone.step([(SeqId(i + 1), prompt, 0, len(prompt))])
        torch.testing.assert_close(got, wanted[i][-1], **NEAR)
    if kernel is not None:  # the kernel does not support sinks and head_dim 24
        assert (kernel.num_calls > 0) == (family not in {"gpt_oss", "llama-head-dim"})

    for i, prompt in enumerate(prompts):
        again = SeqId(100 + i)
        alone.cache.add(again)
        start = alone.cache.extend(again, prompt, len(prompt) - 1)
        assert start == (len(prompt) - 1) // PAGE_SIZE * PAGE_SIZE  # pages that the first sequence computed
        [got] = alone.step([(again, prompt, start, len(prompt))])
        torch.testing.assert_close(got, wanted[i][-1], **NEAR)

    crowd, done, sizes = Runner(model), [0] * len(prompts), random.Random(1)
    while any(at < len(prompt) for at, prompt in zip(done, prompts, strict=True)):
        work = []
        for i, prompt in enumerate(prompts):
            # Decodes and prefills in one batch, sequences at different positions.
            end = min(len(prompt), done[i] + sizes.choice((1, 1, 1, 5, 10)))
            if end > done[i]:
                work.append((i, (SeqId(i + 1), prompt, done[i], end)))
        logits = crowd.step([item for _, item in work])
        for row, (i, (_, _, _, end)) in zip(logits, work, strict=True):
            torch.testing.assert_close(row, wanted[i][end - 1], **NEAR)
            done[i] = end


def test_a_fork_reads_its_parents_pages_and_writes_its_own() -> None:
    module = build("llama")
    prompt = sequences()[3]
    other = [*prompt[:18], *reversed(prompt[18:])]
    with torch.inference_mode():
        wanted = [module(torch.tensor([tokens]), use_cache=False).logits[0, -1] for tokens in (prompt, other)]
    runner = Runner(adopt(module, eos_tokens=frozenset()))
    runner.step([(SeqId(1), prompt, 0, 18)])
    runner.cache.fork(SeqId(1), SeqId(2))
    got = runner.step([(SeqId(1), prompt, 18, len(prompt)), (SeqId(2), other, 18, len(other))])
    torch.testing.assert_close(got, torch.stack(wanted), **NEAR)


def falcon() -> Any:
    return tf.FalconForCausalLM(
        tf.FalconConfig(vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    )


def encoder_decoder() -> Any:
    config = tf.BartConfig(
        vocab_size=97, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
    )  # fmt: skip
    return tf.BartForConditionalGeneration(config)


def bidirectional() -> Any:
    config = tf.BertConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
        is_decoder=False,
    )  # fmt: skip
    return tf.BertLMHeadModel(config)


def chunked() -> Any:
    config = tf.Llama4TextConfig(
        **{**SMALL, "attention_chunk_size": 16, "num_local_experts": 2, "intermediate_size_mlp": 32, "head_dim": 8}
    )
    return tf.Llama4ForCausalLM(config)


def hybrid() -> Any:
    return tf.MambaForCausalLM(tf.MambaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=2, state_size=4))


@pytest.mark.parametrize("make", [falcon, encoder_decoder, bidirectional, chunked, hybrid])
def test_what_cannot_run_is_refused_by_name(make: Any) -> None:
    module = make().eval()
    with pytest.raises(UsageError, match=f"{type(module).__name__} cannot run on this engine: "):
        adopt(module, eos_tokens=frozenset())


def test_an_unknown_attention_option_is_refused_by_name() -> None:
    module = build("gemma2")

    class Biased(torch.nn.Module):
        """A layer with an attention option that the engine does not know, as in a future family."""

        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.layer(*args, **kwargs, position_bias=torch.zeros(1))

    for layer in module.model.layers:
        layer.self_attn = Biased(layer.self_attn)
    with pytest.raises(UsageError, match="position_bias"):
        adopt(module, eos_tokens=frozenset())
