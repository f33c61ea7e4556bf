"""Products with packed weights against torch, and transformers models with native linear layers."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.ids import SeqId
from aici_engine.config import EngineConfig
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.huggingface import HuggingFaceModel
from aici_engine.model.quantize import GROUP
from aici_engine.model.round_weights import round_weights
from aici_engine.native import library
from aici_engine.native.backend import make_model
from aici_engine.native.bindings import Format
from aici_engine.native.linear import NativeLinear, use_integers
from aici_engine.native.thread_pool import ThreadPool
from tests.engine.model.quantize_support import dequantize, quantize_int4, quantize_int8
from tests.engine.model.test_models import Runner, build, sequences
from tests.engine.native.test_native_model import ABLE

pytestmark = pytest.mark.skipif(not ABLE, reason="no kernels for this processor")


def pool(num_threads: int = 1, level: str = "") -> ThreadPool:
    return ThreadPool(library.of_level(level or ABLE[-1]), num_threads)


def as_weighed(weight: torch.Tensor, form: Format) -> torch.Tensor:
    if form is Format.INT8:
        return dequantize(*quantize_int8(weight))
    if form is Format.INT4:
        return dequantize(*quantize_int4(weight))
    return weight.bfloat16().float() if form is Format.BF16 else weight


def as_activated(x: torch.Tensor, form: Format) -> torch.Tensor:
    """Round activations as the kernels do: for integer weights, to bytes in groups of 32."""
    if form not in (Format.INT8, Format.INT4):
        return x.bfloat16().float() if form is Format.BF16 else x
    groups = x.unflatten(1, (-1, GROUP))
    scale = groups.abs().amax(-1, keepdim=True) / 127
    codes = (groups / torch.where(scale == 0, 1.0, scale)).round()
    return (codes * scale).flatten(1)


@settings(max_examples=30, deadline=None)
@given(
    form=st.sampled_from(list(Format)[:4]),
    rows=st.integers(1, 70),
    groups=st.integers(1, 5),
    tokens=st.integers(1, 20),
    has_bias=st.booleans(),
    num_threads=st.integers(1, 3),
    seed=st.integers(0, 1 << 16),
)
def test_a_product_is_what_torch_makes_of_the_same_numbers(
    form: Format, rows: int, groups: int, tokens: int, has_bias: bool, num_threads: int, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    weight, x = (torch.randn(n, groups * GROUP, generator=random) for n in (rows, tokens))
    x[:, :GROUP] *= 100  # outliers in one group must not affect the scales of other groups
    x[0, -GROUP:] = 0
    bias = torch.randn(rows, generator=random) if has_bias else None
    got = NativeLinear(weight, bias, form, pool(num_threads))(x)
    wanted = torch.nn.functional.linear(as_activated(x, form).double(), as_weighed(weight, form).double())
    wanted = wanted if bias is None else wanted + bias
    # A quotient between two codes may round either way, rarely: an error of one code in the group of outliers.
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=3e-3 if form < Format.INT8 else 3.0)
    assert (got - wanted).abs().median() < 1e-3


@pytest.mark.parametrize("form", list(Format)[:4])
def test_levels_change_no_bit_of_numbers_of_any_size(form: Format) -> None:
    random = torch.Generator().manual_seed(7)
    weight, x = (
        torch.randn(n, 96, generator=random) * 2.0 ** torch.randint(-40, 40, (n, 96), generator=random) for n in (48, 9)
    )
    weight[0, ::3], x[0, 1::3] = 1e-39, -1e-39
    x[3, 9] = 3.4e38
    if form in (Format.F32, Format.BF16):
        x[1, 5], x[2, 7], x[4, 11] = float("inf"), float("-inf"), float("nan")
    results = [NativeLinear(weight, None, form, pool(level=level))(x) for level in ABLE]
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("form", list(Format)[:4])
@pytest.mark.parametrize("level", ABLE)
def test_what_is_no_number_is_not_lost_among_others(level: str, form: Format) -> None:
    """With integer weights, NaN could become code 0 of its group."""
    x = torch.ones(3, 64)
    x[1, 40] = float("nan")
    rows = NativeLinear(torch.ones(20, 64), None, form, pool(level=level))(x)
    assert rows[1].isnan().all()
    assert rows[[0, 2]].isfinite().all()


TINY: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0,
}  # fmt: skip


@pytest.mark.parametrize("form", [Format.INT8, Format.INT4])
@pytest.mark.parametrize("family", ["Phi", "GPTNeoX", "GPT2"])
def test_linear_layers_of_transformers_models_compute_with_integers(family: str, form: Format) -> None:
    torch.manual_seed(3)
    module: Any = {
        "Phi": lambda: tf.PhiForCausalLM(tf.PhiConfig(**TINY)),
        "GPTNeoX": lambda: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**TINY)),
        "GPT2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=99, n_embd=64, n_layer=2, n_head=4)),
    }[family]()
    module.eval()
    rounded = copy.deepcopy(module)
    round_weights(rounded, bits=8 if form is Format.INT8 else 4)
    use_integers(module, form, pool())
    assert sum(isinstance(part, NativeLinear) for part in module.modules()) > 8
    assert not any(type(part) is torch.nn.Linear for part in module.modules())
    tokens = torch.arange(3, 40)[None]
    with torch.inference_mode():
        got, wanted = (each(tokens).logits[0] for each in (module, rounded))
    assert torch.nn.functional.cosine_similarity(got, wanted).min() > 0.995


def test_a_family_that_the_kernels_run_in_part_keeps_its_integers_and_attends_by_them(tmp_path: Path) -> None:
    module = build("phi")
    round_weights(module, bits=8)
    module.save_pretrained(tmp_path)
    model = make_model(EngineConfig(model_dir=tmp_path), ComputeDevice("cpu", 16))
    assert isinstance(model, HuggingFaceModel)
    assert isinstance(model.module.model.layers[0].mlp.fc1, NativeLinear)
    assert model.make_storage(num_pages=1, page_size=16).keys[0].dtype is torch.bfloat16
    prompt = sequences()[3]
    module.set_attn_implementation("eager")
    with torch.inference_mode():
        wanted = module(torch.tensor([prompt])).logits[0, -1]
    [got] = Runner(model).step([(SeqId(1), prompt, 0, len(prompt))])
    assert torch.nn.functional.cosine_similarity(got, wanted, 0) > 0.99
