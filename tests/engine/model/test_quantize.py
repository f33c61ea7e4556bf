"""Quantized weights are restored exactly; the error of other weights is bounded by the number of bits."""

import copy
from typing import Any, Final

import pytest
import torch
import transformers as tf
from safetensors import safe_open

from aici_engine.model.quantize import GROUP
from aici_engine.model.round_weights import round_weights
from tests.engine.model.quantize_support import dequantize, quantize_int4, quantize_int8
from tests.support.model import default_model_dir

ROWS: Final = 40
COLUMNS: Final = 8 * GROUP


def spread(weight: torch.Tensor) -> torch.Tensor:
    """Return, for every weight, the range (maximum - minimum) of its group."""
    low, high = weight.unflatten(1, (-1, GROUP)).aminmax(dim=-1)
    return (high - low).repeat_interleave(GROUP, 1)


def some_scales() -> torch.Tensor:
    return (torch.rand(ROWS, COLUMNS // GROUP) * 0.02 + 1e-4).half()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


@pytest.mark.parametrize(("low", "high"), [(0, 15), (0, 3), (2, 13)])
def test_what_lies_on_a_grid_of_sixteen_comes_back_exactly(low: int, high: int) -> None:
    """Q4_1, with any subset of codes in use."""
    codes = torch.randint(low, high + 1, (ROWS, COLUMNS), dtype=torch.uint8)
    weight = dequantize(codes, some_scales(), (torch.randn(ROWS, COLUMNS // GROUP) * 0.1).half())
    got, scales, mins = quantize_int4(weight)
    assert (got.dtype, scales.dtype, mins.dtype) == (torch.uint8, torch.float16, torch.float16)
    assert int(got.max()) <= 15
    assert torch.equal(dequantize(got, scales, mins), weight)


def test_a_scale_below_zero_comes_back_exactly() -> None:
    """Q4_0: code 0 is the weight of largest magnitude, positive or negative."""
    codes = torch.randint(0, 15, (ROWS, COLUMNS), dtype=torch.uint8)
    codes[:, ::GROUP] = 0
    scales = some_scales() * torch.where(torch.rand(ROWS, COLUMNS // GROUP) < 0.5, -1, 1).half()
    weight = dequantize(codes, scales, scales * -8)
    assert torch.equal(dequantize(*quantize_int4(weight)), weight)


def test_what_lies_on_a_finer_grid_than_f16_comes_back_nearly() -> None:
    """Formats with quantized scales (Q4_K): the grid itself is rounded."""
    codes = torch.randint(0, 12, (ROWS, COLUMNS), dtype=torch.uint8)
    scales = torch.rand(ROWS, COLUMNS // GROUP) * 0.02 + 1e-3
    weight = dequantize(codes, scales, -torch.rand(scales.shape) * 0.1)
    apart = (dequantize(*quantize_int4(weight)) - weight).abs()
    assert bool((apart <= spread(weight) / 100).all())  # another grid of 16 codes: off by 1 / 30


def test_weights_of_no_grid_are_off_by_half_a_step_and_less_on_the_whole() -> None:
    weight = torch.randn(ROWS, COLUMNS)
    eight = dequantize(*quantize_int8(weight)) - weight
    largest = weight.abs().unflatten(1, (-1, GROUP)).amax(-1).repeat_interleave(GROUP, 1)
    assert bool((eight.abs() <= largest / 127 * 0.51).all())
    four = dequantize(*quantize_int4(weight)) - weight
    assert bool((four.abs() <= spread(weight) / 15).all())
    even = spread(weight) / 15  # mean squared rounding error of an even grid: step^2 / 12
    assert float(four.square().mean()) < 0.95 * float((even.square() / 12).mean())


def test_a_group_of_one_value_and_a_matrix_in_bfloat16() -> None:
    weight = torch.randn(3, 2 * GROUP).bfloat16()
    weight[0], weight[1, :GROUP] = 0, -0.25
    for quantized in (quantize_int8(weight), quantize_int4(weight)):
        back = dequantize(*quantized)
        assert torch.equal(back[0], torch.zeros(2 * GROUP))
        assert bool(((back[1, :GROUP] + 0.25).abs() < 1e-4).all())
        assert bool(((back - weight.float()).abs() <= spread(weight.float()) / 15 + 1e-4).all())


def test_rows_that_are_no_whole_groups_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 33\)"):
        quantize_int4(torch.zeros(2, 33))


def test_the_default_model_comes_back_as_it_was_stored() -> None:
    """The GGUF file has layers in Q4_1, and the tied embedding in Q8_0."""
    matrices = []
    for path in default_model_dir().glob("*.safetensors"):
        with safe_open(path, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                if (".0." in name or ".29." in name) and "norm" not in name:
                    matrices.append(tensors.get_tensor(name))
                elif name == "model.embed_tokens.weight":
                    embedding = tensors.get_slice(name)[:4096]
    assert len(matrices) == 14
    assert all(torch.equal(dequantize(*quantize_int4(weight)), weight) for weight in matrices)
    assert torch.equal(dequantize(*quantize_int8(embedding)), embedding)


def rounded(module: Any, bits: int) -> tuple[Any, Any]:
    """A model before and after rounding."""
    before = copy.deepcopy(module)
    round_weights(module, bits=bits)
    return before, module


@pytest.mark.parametrize("bits", [8, 4])
def test_the_matrices_of_a_model_are_rounded_and_its_two_ends_to_8_bits(bits: int) -> None:
    sizes = {"vocab_size": 50, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
    before, after = rounded(tf.LlamaForCausalLM(tf.LlamaConfig(**sizes, num_hidden_layers=1)), bits)
    layers = [(old.model.layers[0], old.model.embed_tokens, old.lm_head, old.model.norm) for old in (before, after)]
    (was, embedding, head, norm), (is_now, embedding_now, head_now, norm_now) = layers
    for wanted, got in ((embedding, embedding_now), (head, head_now)):
        assert torch.equal(got.weight, dequantize(*quantize_int8(wanted.weight)))
    quantize = quantize_int8 if bits == 8 else quantize_int4
    assert torch.equal(is_now.mlp.down_proj.weight, dequantize(*quantize(was.mlp.down_proj.weight)))
    assert not torch.equal(is_now.mlp.down_proj.weight, was.mlp.down_proj.weight)
    assert torch.equal(norm_now.weight, norm.weight)


def test_a_matrix_that_lies_the_other_way_is_rounded_along_its_inputs_and_tied_ends_stay_one() -> None:
    module = tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=50, n_embd=64, n_layer=1, n_head=4, n_positions=32))
    before, after = rounded(module, 4)
    was, got = (each.transformer.h[0].mlp.c_fc.weight for each in (before, after))
    assert was.shape == (64, 256)
    assert torch.equal(got, dequantize(*quantize_int4(was.T)).T)
    assert after.lm_head.weight is after.transformer.wte.weight
    assert torch.equal(after.lm_head.weight, dequantize(*quantize_int8(before.lm_head.weight)))
    assert torch.equal(after.transformer.wpe.weight, before.transformer.wpe.weight)
