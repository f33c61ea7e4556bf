"""Merged adapters against products that are added at run time, on torch and on the kernels."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from aici_base.errors import UsageError
from aici_base.ids import SeqId
from aici_engine.config import EngineConfig
from aici_engine.engine import Engine
from aici_engine.model.load import load_model
from aici_engine.native.bindings import Format
from aici_engine.native.model import NativeModel
from aici_engine.native.packed_weights import PackedWeights
from tests.engine.model.test_models import NEAR, Runner, build, pool, sequences
from tests.engine.support import encode, write_tiny_model
from tests.support.lora import adapt, random_pairs, write_lora

LLAMA = {
    "model.layers.0.self_attn.q_proj": 4,
    "model.layers.1.self_attn.v_proj": 4,
    "model.layers.2.mlp.down_proj": 2,
    "model.layers.3.mlp.gate_proj": 4,
}
GPT2 = {"transformer.h.0.attn.c_attn": 3, "transformer.h.1.mlp.c_proj": 3}
CASES: dict[str, tuple[str, dict[str, int], dict[str, Any], dict[str, float]]] = {
    "alpha": ("llama", LLAMA, {"lora_alpha": 2}, dict(zip(LLAMA, (0.5, 0.5, 1.0, 0.5), strict=True))),
    "rslora": (
        "llama", LLAMA, {"lora_alpha": 2, "use_rslora": True}, dict(zip(LLAMA, (1.0, 1.0, 2**0.5, 1.0), strict=True)),
    ),
    "patterns": (
        "llama", LLAMA,
        {"lora_alpha": 4, "alpha_pattern": {"down_proj": 1, r"layers\.0\.self_attn\.q_proj": 8, "q_proj": 9}},
        dict(zip(LLAMA, (2.0, 1.0, 0.5, 1.0), strict=True)),
    ),
    "conv1d": ("gpt2", GPT2, {"lora_alpha": 6, "fan_in_fan_out": True}, dict.fromkeys(GPT2, 2.0)),
}  # fmt: skip


@pytest.mark.parametrize("by", ["torch", "kernels"])
@pytest.mark.parametrize("case", CASES)
def test_a_merged_adapter_gives_the_logits_of_added_products(case: str, by: str, tmp_path: Path) -> None:
    family, layers, settings, scales = CASES[case]
    module = build(family)
    module.save_pretrained(tmp_path / "model")
    pairs = random_pairs(module, layers)
    lora = write_lora(tmp_path / "lora", pairs, **settings)
    module.set_attn_implementation("eager")
    prompt = sequences()[2]
    with torch.inference_mode():
        plain = module(torch.tensor([prompt]), use_cache=False).logits[0, -1]
        adapt(module, pairs, scales)
        wanted = module(torch.tensor([prompt]), use_cache=False).logits[0, -1]
    assert not torch.allclose(plain, wanted, atol=0.1)
    theirs = load_model(tmp_path / "model", dtype="float32", lora=lora)
    model = NativeModel(PackedWeights.of(theirs, Format.F32), pool()) if by == "kernels" else theirs
    [got] = Runner(model).step([(SeqId(1), prompt, 0, len(prompt))])
    torch.testing.assert_close(torch.as_tensor(got), wanted, **NEAR)


@pytest.mark.one_process
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_engines_with_and_without_an_adapter_stay_apart(dtype: Any, tmp_path: Path) -> None:
    """int8 weights are cached by the folder of the model: an adapter is neither written there nor read."""
    from transformers import AutoModelForCausalLM

    folder = write_tiny_model(tmp_path / "model", num_heads=2)
    module: Any = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    layer = "model.layers.0.mlp.up_proj"
    pairs = random_pairs(module, {layer: 2})
    lora = write_lora(tmp_path / "lora", pairs)

    def text(adapter: Path | None) -> str:
        config = EngineConfig(model_dir=folder, dtype=dtype, num_pages=16, page_size=16, lora=adapter)
        with Engine(config) as engine:
            return engine.generate("Hello", max_tokens=24, temperature=0.0, ignore_eos=True)

    plain = text(None)
    adapted = text(lora)
    assert adapted != plain
    assert (text(None), text(lora)) == (plain, adapted)
    if dtype == "float32":
        adapt(module, pairs, {layer: 1.0})
        ids = torch.tensor([encode("Hello")])
        with torch.inference_mode():
            wanted = module.generate(ids, do_sample=False, max_new_tokens=24, eos_token_id=None)[0, 5:].tolist()
        assert adapted == bytes(token for token in wanted if token < 256).decode(errors="replace")


def test_what_is_not_a_plain_lora_adapter_is_refused_by_name(tmp_path: Path) -> None:
    module = build("llama")
    module.save_pretrained(tmp_path / "model")
    pairs = random_pairs(module, LLAMA)
    for number, (settings, named) in enumerate(
        (
            ({"peft_type": "IA3"}, "peft_type"),
            ({"use_dora": True}, "use_dora"),
            ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
            ({"bias": "all"}, "bias"),
            ({"init_lora_weights": "pissa"}, "pissa"),
            ({"a_setting_of_tomorrow": 1}, "a_setting_of_tomorrow"),
        )
    ):
        lora = write_lora(tmp_path / f"settings-{number}", pairs, **settings)
        with pytest.raises(UsageError, match=named):
            load_model(tmp_path / "model", dtype="float32", lora=lora)
    others = {
        "no linear layer model.layers.9": {"model.layers.9.mlp.up_proj": pairs["model.layers.0.self_attn.q_proj"]},
        "no linear layer model.embed_tokens": {"model.embed_tokens": pairs["model.layers.0.self_attn.q_proj"]},
        "do not fit each other": {"model.layers.0.mlp.up_proj": (torch.zeros(2, 64), torch.zeros(96, 3))},
        r"is \(96, 64\) in the model": {"model.layers.0.mlp.up_proj": (torch.zeros(2, 64), torch.zeros(64, 2))},
    }
    for number, (named, wrong) in enumerate(others.items()):
        with pytest.raises(UsageError, match=named):
            load_model(tmp_path / "model", dtype="float32", lora=write_lora(tmp_path / f"layers-{number}", wrong))
    broken = write_lora(tmp_path / "broken", pairs)
    (broken / "adapter_model.safetensors").write_bytes(b"not a file of tensors")
    with pytest.raises(UsageError, match="cannot be read"):
        load_model(tmp_path / "model", dtype="float32", lora=broken)
    (broken / "adapter_model.safetensors").unlink()
    with pytest.raises(UsageError, match="is missing"):
        load_model(tmp_path / "model", dtype="float32", lora=broken)
    with pytest.raises(UsageError, match="is missing"):
        load_model(tmp_path / "model", dtype="float32", lora=tmp_path)


def test_a_head_that_is_the_embedding_is_refused(tmp_path: Path) -> None:
    module = build("llama", tie_word_embeddings=True)
    module.save_pretrained(tmp_path / "model")
    lora = write_lora(tmp_path / "lora", random_pairs(module, {"lm_head": 2}))
    assert json.loads((lora / "adapter_config.json").read_text())["target_modules"] == ["lm_head"]
    with pytest.raises(UsageError, match="the embedding, too"):
        load_model(tmp_path / "model", dtype="float32", lora=lora)


def test_stages_take_no_adapter() -> None:
    with pytest.raises(UsageError, match="adapter"):
        EngineConfig(model_dir=Path(), lora=Path(), stages=("tcp://a:1#k",))
