"""Engines of others behind one small conversation, so that the same work can be asked of each in turn.

Run as a program, under the Python that the engine is installed in: this file needs nothing but that and the standard
library. A line of JSON comes in, a line goes out: `version` says which engine is here, `prepare` makes its own form of
a model folder, `load` loads it, `run` decodes greedily from prompts of equal length and says when each token of each
sequence was there.
"""

import json
import os
import sys
import time
import traceback
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

Prompts = list[list[int]]


class Run:
    """Of each sequence, its tokens and when each was there, in seconds since the run began."""

    def __init__(self, num_sequences: int) -> None:
        self.tokens: Prompts = [[] for _ in range(num_sequences)]
        self.times: list[list[float]] = [[] for _ in range(num_sequences)]
        self._began = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._began

    def step(self, tokens: list[int]) -> None:
        """One token of every sequence."""
        for number, token in enumerate(tokens):
            self.add(number, [token], self.now())

    def add(self, number: int, tokens: list[int], at: float) -> None:
        self.tokens[number] += tokens
        self.times[number] += [at] * len(tokens)


class Contestant(Protocol):
    """`job`: `model`, the folder; `form`, of the weights; `made`, what `prepare` is to make; `device` and `threads`;
    `batch` and `length`, the most sequences at once and tokens of each."""

    def __init__(self, job: dict[str, Any]) -> None: ...

    def run(self, prompts: Prompts, num_new: int) -> Run: ...

    @staticmethod
    def prepare(job: dict[str, Any]) -> None: ...

    @staticmethod
    def version() -> str: ...


class Transformers:
    def __init__(self, job: dict[str, Any]) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(job["threads"])
        model: Any = AutoModelForCausalLM
        self._model = model.from_pretrained(job["model"], dtype=getattr(torch, job["form"])).to(job["device"])

    def run(self, prompts: Prompts, num_new: int) -> Run:
        import torch

        done = Run(len(prompts))

        def seen(ids: Any, *_: Any, **__: Any) -> Any:
            done.step(ids[:, -1].tolist())
            return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)

        ids = torch.tensor(prompts, device=self._model.device)
        options = {"min_new_tokens": num_new, "max_new_tokens": num_new, "do_sample": False, "pad_token_id": 0}
        self._model.generate(ids, attention_mask=torch.ones_like(ids), stopping_criteria=[seen], **options)
        return done

    @staticmethod
    def prepare(job: dict[str, Any]) -> None:
        pass

    @staticmethod
    def version() -> str:
        return version("transformers")


class LlamaCpp:
    """`gguf` of a job: the model in that format, unquantized."""

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
        self._room = (0, 0)

    def run(self, prompts: Prompts, num_new: int) -> Run:
        import numpy as np

        lib, count, length = self._lib, len(prompts), len(prompts[0])
        self._make_context(count, length)
        lib.llama_memory_clear(lib.llama_get_memory(self._context), True)
        vocab_size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))
        batch = lib.llama_batch_init(count * length, 0, 1)
        rows, done, at = prompts, Run(count), 0
        for _ in range(num_new):
            self._fill(batch, rows, at)
            if lib.llama_decode(self._context, batch) != 0:
                raise RuntimeError("llama_decode failed")
            logits = np.ctypeslib.as_array(lib.llama_get_logits(self._context), (count, vocab_size))
            tokens = logits.argmax(axis=1).tolist()
            done.step(tokens)
            at += len(rows[0])
            rows = [[token] for token in tokens]
        lib.llama_batch_free(batch)
        return done

    def _make_context(self, count: int, length: int) -> None:
        """One for just so many sequences: attention over slots that nobody uses would cost."""
        lib = self._lib
        if self._room == (count, length):
            return
        if self._context:
            lib.llama_free(self._context)
        params = lib.llama_context_default_params()
        params.n_ctx = count * (-(-self._job["length"] // 256) * 256)
        params.n_batch, params.n_seq_max = max(512, count * length), count
        params.n_threads = params.n_threads_batch = self._job["threads"]
        self._context, self._room = lib.llama_init_from_model(self._model, params), (count, length)
        if not self._context:
            raise RuntimeError("llama.cpp cannot make a context")

    @staticmethod
    def _fill(batch: Any, rows: Prompts, at: int) -> None:
        """Of each sequence the tokens that follow its first `at`; logits for the last of each."""
        n = 0
        for number, row in enumerate(rows):
            for place, token in enumerate(row):
                batch.token[n], batch.pos[n], batch.logits[n] = token, at + place, place == len(row) - 1
                batch.n_seq_id[n], batch.seq_id[n][0] = 1, number
                n += 1
        batch.n_tokens = n

    @staticmethod
    def prepare(job: dict[str, Any]) -> None:
        import llama_cpp

        lib: Any = llama_cpp
        params = lib.llama_model_quantize_default_params()
        params.ftype = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{job['form']}")
        if lib.llama_model_quantize(job["gguf"].encode(), f"{job['made']}.part".encode(), params) != 0:
            raise RuntimeError(f"llama.cpp cannot make {job['form']} of this model")
        os.replace(f"{job['made']}.part", job["made"])

    @staticmethod
    def version() -> str:
        return version("llama-cpp-python")


class CTranslate2:
    def __init__(self, job: dict[str, Any]) -> None:
        import ctranslate2

        self._generator = ctranslate2.Generator(
            job["made"], device=job["device"], compute_type=job["form"], intra_threads=job["threads"]
        )
        with open(f"{job['made']}/vocabulary.json", encoding="utf-8") as file:
            self._names: list[str] = json.load(file)

    def run(self, prompts: Prompts, num_new: int) -> Run:
        names = [[self._names[token] for token in prompt] for prompt in prompts]
        done = Run(len(prompts))

        def seen(step: Any) -> bool:
            done.add(step.batch_id, [step.token_id], done.now())
            return False

        self._generator.generate_batch(
            names, max_length=num_new, min_length=num_new, include_prompt_in_result=False, callback=seen
        )
        return done

    @staticmethod
    def prepare(job: dict[str, Any]) -> None:
        from ctranslate2.converters import TransformersConverter

        part = f"{job['made']}.part"
        TransformersConverter(job["model"]).convert(part, quantization=job["form"], force=True)
        os.rename(part, job["made"])

    @staticmethod
    def version() -> str:
        return version("ctranslate2")


class Vllm:
    """Each of its builds has a device of its own."""

    def __init__(self, job: dict[str, Any]) -> None:
        cores = sorted(os.sched_getaffinity(0))[: job["threads"]]
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        from vllm import LLM

        options = {"max_model_len": job["length"], "max_num_seqs": job["batch"], "dtype": job["form"]}
        self._engine = LLM(model=job["model"], disable_log_stats=True, **options).llm_engine

    def run(self, prompts: Prompts, num_new: int) -> Run:
        from vllm import SamplingParams

        params = SamplingParams(temperature=0.0, max_tokens=num_new, ignore_eos=True, detokenize=False)
        done = Run(len(prompts))
        for number, prompt in enumerate(prompts):
            self._engine.add_request(str(number), {"prompt_token_ids": prompt}, params)
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                number, now = int(output.request_id), done.now()
                done.add(number, list(output.outputs[0].token_ids)[len(done.tokens[number]) :], now)
        return done

    @staticmethod
    def prepare(job: dict[str, Any]) -> None:
        pass

    @staticmethod
    def version() -> str:
        try:
            return version("vllm-cpu")
        except PackageNotFoundError:
            return version("vllm")


PEERS: dict[str, type[Contestant]] = {
    "hf": Transformers,
    "llama.cpp": LlamaCpp,
    "ctranslate2": CTranslate2,
    "vllm": Vllm,
}


def serve(kind: type[Contestant]) -> None:
    """Answer on what is stdout now; whatever else is printed goes to stderr."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    loaded: list[Contestant] = []
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = _answer(kind, loaded, asked["op"], asked["job"])
        except PackageNotFoundError:
            answer = {"error": f"not installed in {sys.executable}"}
        except Exception as error:  # noqa: BLE001  they raise what they like
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=replies, flush=True)


def _answer(kind: type[Contestant], loaded: list[Contestant], op: str, job: dict[str, Any]) -> dict[str, Any]:
    if op == "version":
        return {"version": kind.version()}
    if op == "prepare":
        kind.prepare(job)
        return {}
    if op == "load":
        began = time.perf_counter()
        loaded.append(kind(job))
        return {"load_s": time.perf_counter() - began}
    done = loaded[0].run(job["prompts"], job["num_new"])
    return {"tokens": done.tokens, "times": done.times}


if __name__ == "__main__":
    serve(PEERS[sys.argv[1]])
