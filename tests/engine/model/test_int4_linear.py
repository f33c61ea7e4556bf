"""int4 weights in torch's kernels: the products of the dequantized weights. On the CPU, torch has the same kernels."""

import pytest
import torch

from aici_base.errors import UsageError
from aici_base.ids import SeqId
from aici_engine.model.int4_linear import Int4Linear, use_int4
from aici_engine.model.load import adopt
from aici_engine.model.quantize import dequantize, quantize_int4
from tests.engine.model.test_models import Runner, build, sequences

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(("rows", "columns"), [(64, 128), (16, 32), (96, 64), (48, 160)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_products_are_those_of_the_dequantized_weights(rows: int, columns: int, has_bias: bool) -> None:
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(rows, columns, generator=generator).bfloat16()
    bias = torch.randn(rows, generator=generator).bfloat16() if has_bias else None
    x = torch.randn(2, 3, columns, generator=generator).bfloat16()
    known = torch.from_numpy(dequantize(*quantize_int4(weight.float().numpy())))
    wanted = x.float() @ known.T + (0 if bias is None else bias.float())
    found = Int4Linear(weight, bias, DEVICE)(x.to(DEVICE)).cpu().float()
    assert found.shape == (2, 3, rows)
    assert (found - wanted).norm() < 0.01 * wanted.norm()


def test_layers_are_replaced_but_head_and_embedding() -> None:
    module = build("llama").bfloat16()
    use_int4(module, DEVICE)
    kinds = {name: type(part).__name__ for name, part in module.named_modules() if "proj" in name or name == "lm_head"}
    assert kinds.pop("lm_head") == "Linear"
    assert "Int4Linear" in kinds.values()
    assert module.get_input_embeddings().weight.dtype == torch.bfloat16


def test_an_adopted_model_computes_with_the_rounded_weights() -> None:
    exact, packed = build("llama").bfloat16(), build("llama").bfloat16()
    for part in exact.modules():
        if isinstance(part, torch.nn.Linear) and part is not exact.get_output_embeddings():
            part.weight.data = torch.from_numpy(
                dequantize(*quantize_int4(part.weight.float().detach().numpy()))
            ).bfloat16()
    work = [(SeqId(1), sequences()[3], 0, 9)]
    wanted = Runner(adopt(exact, eos_tokens=frozenset())).step(work)
    found = Runner(adopt(packed, eos_tokens=frozenset(), device=DEVICE, int4=True)).step(work)
    assert (found.cpu() - wanted).norm() < 0.05 * wanted.norm()


def test_a_model_without_such_layers_is_refused() -> None:
    with pytest.raises(UsageError, match="has no layer"):
        use_int4(build("gpt2").bfloat16(), DEVICE)
