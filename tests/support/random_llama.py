"""A Llama of any size with random bf16 weights, written tensor by tensor: `python -m tests.support.random_llama DIR`.

The tokenizer is that of the tiny models: one token per byte.
"""

import argparse
import json
import math
from pathlib import Path

import torch

from tests.engine.support import EOS, VOCAB_SIZE, write_tokenizer


def write_random_llama(
    folder: Path,
    *,
    num_layers: int = 15,
    hidden: int = 2048,
    intermediate: int = 5504,
    context: int = 2048,
) -> int:
    """Write config.json, model.safetensors and a tokenizer; return the bytes of all tensors. The default: 1.5 GB."""
    folder.mkdir(parents=True, exist_ok=True)
    heads, kv_heads = hidden // 128, max(1, hidden // 512)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "vocab_size": VOCAB_SIZE, "hidden_size": hidden, "intermediate_size": intermediate,
        "num_hidden_layers": num_layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": 128, "hidden_act": "silu",
        "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "attention_bias": False, "mlp_bias": False, "eos_token_id": int(EOS), "bos_token_id": None,
        "pad_token_id": int(EOS),
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": int(EOS)}))
    write_tokenizer(folder)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB_SIZE, hidden)}
    for layer in range(num_layers):
        of_layer = {
            "input_layernorm": (hidden,),
            "self_attn.q_proj": (heads * 128, hidden),
            "self_attn.k_proj": (kv_heads * 128, hidden),
            "self_attn.v_proj": (kv_heads * 128, hidden),
            "self_attn.o_proj": (hidden, heads * 128),
            "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (intermediate, hidden),
            "mlp.up_proj": (intermediate, hidden),
            "mlp.down_proj": (hidden, intermediate),
        }
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in of_layer.items()}
    shapes |= {"model.norm.weight": (hidden,), "lm_head.weight": (VOCAB_SIZE, hidden)}
    _write(folder / "model.safetensors", shapes)
    return sum(2 * math.prod(shape) for shape in shapes.values())


def _write(file: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = torch.Generator().manual_seed(0)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            # Wide logits: greedy choices are no ties.
            scale = 1.0 if len(shape) == 1 else 1.5 / math.sqrt(shape[1])
            tensor = torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=generator) * scale
            tensor.to(torch.bfloat16).view(torch.uint8).numpy().tofile(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=17)
    args = parser.parse_args()
    print(f"{write_random_llama(args.folder, num_layers=args.layers):,} bytes")
