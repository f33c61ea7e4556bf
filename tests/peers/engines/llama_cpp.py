"""llama.cpp, through the low-level API of llama-cpp-python.

The GGUF file has no vocabulary, because engines get token ids. Tensor names are those of llama.cpp's gguf-py, the
layout of rotary heads is that of llama.cpp's converter for Hugging Face folders.
"""

import json
import os
from pathlib import Path
from typing import Any

NAME = "llama.cpp"
PACKAGES = ("llama-cpp-python",)
FORMS = ("Q4_0", "Q8_0")


def make_input(job: dict[str, Any]) -> None:
    gguf = _gguf(job)
    if not gguf.exists():
        _write_gguf(Path(job["model"]), gguf)


def prepare(job: dict[str, Any]) -> None:
    import llama_cpp

    lib: Any = llama_cpp
    params = lib.llama_model_quantize_default_params()
    params.ftype = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{job['form']}")
    if lib.llama_model_quantize(str(_gguf(job)).encode(), f"{job['made']}.part".encode(), params) != 0:
        raise RuntimeError(f"llama.cpp cannot make {job['form']} of this model")
    os.replace(f"{job['made']}.part", job["made"])


class Engine:
    def __init__(self, job: dict[str, Any]) -> None:
        import llama_cpp

        self._lib: Any = llama_cpp
        self._lib.llama_backend_init()
        params = self._lib.llama_model_default_params()
        params.n_gpu_layers = 999 if job["device"] == "cuda" else 0
        self._model = self._lib.llama_model_load_from_file(job["made"].encode(), params)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {job['made']}")
        self._job = job
        self._context: Any = None
        self._capacity = (0, 0)

    def run(self, prompts: list[list[int]], num_new: int, out: Any) -> None:
        import numpy as np

        lib, count, length = self._lib, len(prompts), len(prompts[0])
        self._make_context(count, length)
        lib.llama_memory_clear(lib.llama_get_memory(self._context), True)
        vocab_size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))
        batch = lib.llama_batch_init(count * length, 0, 1)
        rows, at = prompts, 0
        for _ in range(num_new):
            self._fill(batch, rows, at)
            if lib.llama_decode(self._context, batch) != 0:
                raise RuntimeError("llama_decode failed")
            logits = np.ctypeslib.as_array(lib.llama_get_logits(self._context), (count, vocab_size))
            tokens = logits.argmax(axis=1).tolist()
            out.step(tokens)
            at += len(rows[0])
            rows = [[token] for token in tokens]
        lib.llama_batch_free(batch)

    def _make_context(self, count: int, length: int) -> None:
        """Make a context for exactly `count` sequences: attention over unused cells would cost time."""
        lib = self._lib
        if self._capacity == (count, length):
            return
        if self._context:
            lib.llama_free(self._context)
        params = lib.llama_context_default_params()
        params.n_ctx = count * (-(-self._job["length"] // 256) * 256)
        params.n_batch, params.n_seq_max = max(512, count * length), count
        params.n_threads = params.n_threads_batch = self._job["threads"]
        self._context, self._capacity = lib.llama_init_from_model(self._model, params), (count, length)
        if not self._context:
            raise RuntimeError("llama.cpp cannot make a context")

    @staticmethod
    def _fill(batch: Any, rows: list[list[int]], at: int) -> None:
        """Fill the batch with the tokens of every sequence from position `at`.

        Request the logits of the last tokens.
        """
        n = 0
        for number, row in enumerate(rows):
            for offset, token in enumerate(row):
                batch.token[n], batch.pos[n], batch.logits[n] = token, at + offset, offset == len(row) - 1
                batch.n_seq_id[n], batch.seq_id[n][0] = 1, number
                n += 1
        batch.n_tokens = n


def _gguf(job: dict[str, Any]) -> Path:
    return Path(job["work"]) / "model.gguf"


def _write_gguf(model: Path, out: Path) -> None:
    """Write the weights in f32.

    Raises BenchEngineError for other architectures than Llama, Mistral, Qwen2 and Qwen3.
    """
    import gguf
    import numpy as np
    from safetensors import safe_open

    from aici_cli.bench.engines.process import BenchEngineError

    config = json.loads((model / "config.json").read_bytes())
    arch = config["model_type"]
    kind = {"llama": gguf.MODEL_ARCH.LLAMA, "mistral": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2,
            "qwen3": gguf.MODEL_ARCH.QWEN3}.get(arch)  # fmt: skip
    if kind is None:
        raise BenchEngineError(f"models of type {arch} cannot be converted to GGUF")
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    heads, kv_heads = config["num_attention_heads"], config.get("num_key_value_heads", config["num_attention_heads"])
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    part = out.with_name(out.name + ".part")
    writer = gguf.GGUFWriter(part, gguf.MODEL_ARCH_NAMES[kind])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(_theta(config))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  not a mapping
                data = tensors.get_tensor(name).float().numpy()
                for part_name, count in (("q_proj", heads), ("k_proj", kv_heads)):
                    if kind is gguf.MODEL_ARCH.LLAMA and part_name in name:
                        data = data.reshape(count, 2, head_dim // 2, -1).swapaxes(1, 2).reshape(data.shape)
                target = names.get_name(name, try_suffixes=(".weight", ".bias"))
                if target is None:
                    raise BenchEngineError(f"the tensor {name} cannot be converted to GGUF")
                writer.add_tensor(target, np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(part, out)


def _theta(config: dict[str, Any]) -> float:
    return float((config.get("rope_parameters") or config).get("rope_theta", 10000.0))
