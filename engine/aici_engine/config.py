"""The configuration of an engine: a value, checked once."""

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Literal, get_args

from aici_base.errors import UsageError
from aici_engine.sampling_params import SamplingParams as SamplingParams

Dtype = Literal["auto", "float32", "bfloat16", "int8", "int4"]
"""The number format of the weights. int8 and int4: in groups of 32 along a row (`aici_engine.model.quantize`), with
8 bits for the input embedding and the output head in either format. auto: the smallest format without loss for the
stored weights."""
DTYPES: Final[tuple[Dtype, ...]] = get_args(Dtype)
DTYPE_HELP: Final = "Format of the weights: float32, bfloat16, int8, int4, or auto: the smallest without loss."
KVCacheDtype = Literal["auto", "int8"]
"""The number format of keys and values. auto: float32 with float32 weights, else bfloat16. int8: bytes, with a scale
for each key and each value of a head."""
KV_CACHE_DTYPES: Final[tuple[KVCacheDtype, ...]] = get_args(KVCacheDtype)
KV_CACHE_DTYPE_HELP: Final = (
    "Format of keys and values: auto (bfloat16, or float32 with float32 weights), or int8: about half of the memory, "
    "with a small loss."
)
Device = Literal["auto", "cpu", "cuda"]
"""auto: a GPU if torch finds a GPU and the dtype is neither int8 nor int4. int8 runs on the CPU only, and the format
int4 is made for the kernels of the CPU."""
DEVICES: Final[tuple[Device, ...]] = get_args(Device)
DEVICE_HELP: Final = "The computing device: cpu, cuda (the first visible GPU), or auto: a GPU if found, else the CPU."
DEFAULT_DTYPE: Final[Dtype] = "auto"
Speculation = Literal["auto", "ngram", "off"]
"""ngram: what followed an earlier occurrence of the last tokens is a draft of the next tokens. auto: ngram where the
engine can draft, else off."""
SPECULATIONS: Final[tuple[Speculation, ...]] = get_args(Speculation)
DEFAULT_SPECULATION: Final[Speculation] = "auto"
SPECULATE_HELP: Final = (
    "Several tokens a forward pass, the same text: auto (drafts from repetitions in prompt and output, where "
    "possible), ngram (the same; an error where impossible), or off."
)
DRAFT_MODEL_HELP: Final = "A smaller model with the same tokens, which drafts: several tokens a pass, the same text."
DRAFT_DTYPE_HELP: Final = "Format of the draft model's weights (default: that of --dtype)."
MAX_PRIORITY = 1 << 31
BACKGROUND_PRIORITY: Final = 1 << 20
"""A request with this priority or later is in the background: computed only if nothing else has work."""


_OF_STAGES: Final = ("depth", "driver_bytes", "token_file")
"""Settings of a divided model; `None` by default."""
_OF_NODES: Final = {"min_nodes": 1, "replan_after_s": 60.0}
"""Settings of a model divided over nodes, with their defaults."""


_NOT_OF_VLLM: Final = (
    "device",
    "page_size",
    "num_pages",
    "memory_fraction",
    "cache_bytes",
    "kv_cache_dtype",
    "max_batch_tokens",
    "prefill_slowdown",
    "stages",
    "nodes",
    "ray_address",
)
"""Settings that have no effect with vLLM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings:
    """vLLM computes. `args`: flags of `vllm serve`. `python`: the interpreter of an environment with vLLM and aici;
    None: this one."""

    args: tuple[str, ...] = ()
    python: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The configuration of an engine. `model_dir`: a local folder in Hugging Face layout.

    >>> config = EngineConfig(model_dir=model_dir, dtype="float32", max_num_seqs=8)
    >>> with Engine(config) as own_engine:
    ...     text = own_engine.generate("Hello", max_tokens=4)

    `lora`: the folder of a LoRA adapter by `peft`, which is merged into the weights when the model is loaded.

    `page_size`, in tokens: `None` takes the size that suits the device. `num_pages`: the pages of the KV cache; `None`
    takes `memory_fraction` of the device's memory available at the start, but no more than `max_num_seqs` sequences of
    full length need. `max_num_seqs`: sequences that run at the same time. `max_batch_tokens`: tokens of one forward
    pass, one of them for every decoding sequence. `prefill_slowdown`: beside decoding sequences, a step computes so
    many tokens of prompts that the step takes about this many times as long; `None` sets no bound. `max_context`, in
    tokens, lowers the limit of the model, and never raises the limit. `num_threads`: threads of the model; `None`
    takes OMP_NUM_THREADS, else one a core. `prefix_cache`: sequences with the same beginning share its computation.

    `speculate`: with auto, a forward pass computes drafted tokens too, where that is faster. The text is the same.
    Only models on the kernels draft, in one process: their logits do not depend on how a text is cut into passes. With
    other models auto is off, and ngram is refused.
    `draft_model`: the folder of a smaller model with the same tokens, which drafts too, or the model's own folder with
    a smaller `draft_dtype`; `None` takes `dtype`. Needs what ngram needs. An adapter changes the model alone. Unless
    `speculate` is off, a sequence takes the longer draft.

    `cache_bytes`: the most bytes of the KV cache, if `memory_fraction` allows more. `kv_cache_dtype`: see
    `KVCacheDtype`; int8 runs on the kernels alone, in one process.

    `calm_rounds`: after this many steps without forced tokens, a controller is told of new tokens during the forward
    pass, and the model does not wait for the controller. If the controller then forces a token after all, a forward
    pass is lost: about the time that twelve steps without a wait save. If earlier runs of the same controller and
    argument hardly ever forced a token, the model waits for the controller in the first step alone.

    `stages`: addresses `tcp://HOST:PORT#KEY` of the stages of a pipeline (`aici stage`), in the order of the layers;
    without addresses the whole model runs in this process. `cuts`: the first layer after every stage; this process
    computes the layers from the last cut on. Without cuts, the layers are divided by memory and speed of the stages and
    of this process; ranges that stages hold already are kept if possible.
    `token_file`: the file with the token of the cluster; `None` takes `cluster-token` in the folder of settings.
    `depth`: the most steps in flight; `None` takes the number of stages + 1. `replay_timeout_s`: if a stage is lost,
    requests wait this many seconds for the stage to come back, and are then computed anew; later they fail.

    `nodes`: addresses `tcp://HOST:PORT#KEY` of node daemons (`aici node join`), over which the layers are divided by
    memory and speed. `ray_address`: HOST:PORT of a cluster's Ray, which knows the nodes. `min_nodes`: the engine waits
    for so many nodes before it divides the model. `replan_after_s`: a node that is away for so many seconds loses its
    layers to others. `driver_bytes`: this machine's memory for layers and cache, if less than it has.

    `vllm`: vLLM schedules and computes, in the place of aici's own scheduler, cache and model.

    Raises UsageError for a value out of range, or values that exclude each other.
    """

    model_dir: Path
    lora: Path | None = None
    dtype: Dtype = DEFAULT_DTYPE
    device: Device = "auto"
    page_size: int | None = None
    num_pages: int | None = None
    memory_fraction: float = 0.4
    cache_bytes: int | None = None
    kv_cache_dtype: KVCacheDtype = "auto"
    max_num_seqs: int = 32
    max_batch_tokens: int = 512
    prefill_slowdown: float | None = 4.0
    max_context: int | None = None
    num_threads: int | None = None
    prefix_cache: bool = True
    calm_rounds: int = 12
    speculate: Speculation = DEFAULT_SPECULATION
    draft_model: Path | None = None
    draft_dtype: Dtype | None = None
    stages: tuple[str, ...] = ()
    cuts: tuple[int, ...] = ()
    token_file: Path | None = None
    depth: int | None = None
    replay_timeout_s: float = 30.0
    nodes: tuple[str, ...] = ()
    ray_address: str | None = None
    min_nodes: int = 1
    replan_after_s: float = 60.0
    driver_bytes: int | None = None
    vllm: VllmSettings | None = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype {self.dtype!r} is not known", hint=f"use one of {', '.join(DTYPES)}")
        if self.draft_dtype is not None and self.draft_dtype not in DTYPES:
            raise UsageError(f"draft_dtype {self.draft_dtype!r} is not known", hint=f"use one of {', '.join(DTYPES)}")
        if self.device not in DEVICES:
            raise UsageError(f"device {self.device!r} is not known", hint=f"use one of {', '.join(DEVICES)}")
        if self.speculate not in SPECULATIONS:
            raise UsageError(f"speculate {self.speculate!r} is not known", hint=f"use one of {', '.join(SPECULATIONS)}")
        if self.kv_cache_dtype not in KV_CACHE_DTYPES:
            known = ", ".join(KV_CACHE_DTYPES)
            raise UsageError(f"kv_cache_dtype {self.kv_cache_dtype!r} is not known", hint=f"use one of {known}")
        if self.device == "cuda" and self.kv_cache_dtype == "int8":
            raise UsageError(
                "keys and values in int8 run on the CPU only: aici has no GPU kernels for them",
                hint="use kv_cache_dtype auto, or device cpu",
                param="kv_cache_dtype",
            )
        if self.device == "cuda" and self.dtype == "int8":
            raise UsageError(
                "int8 weights run on the CPU only: torch has no GPU kernel for int8 in groups of 32",
                hint="use dtype int4, bfloat16, float32 or auto, or device cpu",
            )
        for name in (
            "page_size",
            "num_pages",
            "cache_bytes",
            "max_num_seqs",
            "max_batch_tokens",
            "max_context",
            "num_threads",
            "calm_rounds",
            "depth",
            "min_nodes",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")
        cores = os.cpu_count() or 1
        if self.num_threads is not None and self.num_threads > cores:
            raise UsageError(
                f"num_threads is {self.num_threads}, but this machine has {cores} cores",
                hint="use at most one thread a core: threads on the same core wait for each other",
            )
        if not 0.0 < self.memory_fraction <= 1.0:
            raise UsageError(f"memory_fraction must be in (0, 1], not {self.memory_fraction}")
        if self.prefill_slowdown is not None and not 1.0 <= self.prefill_slowdown < float("inf"):
            raise UsageError(
                f"prefill_slowdown must be a number from 1, not {self.prefill_slowdown}",
                hint="use 4, or 1 to compute as little as possible of prompts beside other requests",
            )
        if self.max_batch_tokens <= self.max_num_seqs:
            raise UsageError(
                f"max_batch_tokens ({self.max_batch_tokens}) must exceed max_num_seqs ({self.max_num_seqs})",
                hint="raise max_batch_tokens: prompts need room beside the decoding sequences",
            )
        self._check_pipeline()
        self._check_speculation()
        if self.vllm is not None:
            self._check_vllm()

    def _check_speculation(self) -> None:
        if self.draft_dtype is not None and self.draft_model is None:
            raise UsageError(
                "draft_dtype has no effect without a draft model",
                hint="leave draft_dtype out, or give draft_model",
                cli_hint="leave --draft-dtype out, or give --draft-model",
                param="draft_dtype",
            )
        if self.draft_model is None and self.speculate != "ngram":
            return
        param = "speculate" if self.draft_model is None else "draft_model"
        if self.vllm is not None:
            raise no_drafts(f"{param} has no effect with vLLM", param)
        if self.stages or self.nodes or self.ray_address is not None:
            raise no_drafts("drafts are not implemented for a model that is divided over stages", param)
        if self.device == "cuda":
            raise no_drafts("drafts need the kernels, which run on the CPU only", param)

    def _check_vllm(self) -> None:
        if self.dtype in ("int8", "int4"):
            raise UsageError(
                f"{self.dtype} weights are of aici's own kernels, not of vLLM",
                hint="use dtype auto, and vLLM's --quantization",
                cli_hint="leave out --dtype, and give --engine-args '--quantization ...'",
                param="dtype",
            )
        if self.lora is not None:
            raise UsageError(
                "adapters are not served with vLLM",
                hint="merge the adapter into the weights, or let aici's own engine compute",
                param="lora",
            )
        defaults = {each.name: each.default for each in fields(self)}
        for name in _NOT_OF_VLLM:
            if getattr(self, name) != defaults[name]:
                raise UsageError(
                    f"{name} has no effect with vLLM",
                    hint="leave it out, or give a setting of vLLM in VllmSettings",
                    cli_hint="leave it out, or give a flag of vLLM in --engine-args",
                    param=name,
                )

    def _check_pipeline(self) -> None:
        if self.cuts and len(self.cuts) != len(self.stages):
            raise UsageError(
                f"there are {len(self.cuts)} cuts for {len(self.stages)} stages",
                hint="give one cut per stage: the number of the first layer after the stage",
            )
        if list(self.cuts) != sorted(self.cuts) or any(cut < 0 for cut in self.cuts):
            raise UsageError(f"cuts must be layers in ascending order, not {','.join(map(str, self.cuts))}")
        if len(set(self.stages)) < len(self.stages):
            raise UsageError("a stage is listed twice", hint="start one `aici stage` for every address")
        if (bool(self.stages), bool(self.nodes), self.ray_address is not None).count(True) > 1:
            raise UsageError(
                "the places of the stages are given more than once",
                hint="give stages, or nodes, or the address of a cluster",
                cli_hint="give one of --stages, --nodes and --cluster",
            )
        if self.lora is not None and (self.stages or self.nodes or self.ray_address is not None):
            raise UsageError(
                "a model with an adapter cannot be divided over stages",
                hint="run the model in one process, or merge the adapter into its files with peft",
                param="lora",
            )
        joins = bool(self.nodes) or self.ray_address is not None
        if self.device == "cuda" and self.dtype == "int4" and (self.stages or joins):
            raise UsageError(
                "int4 weights on a GPU are not implemented for a model that is divided over stages",
                hint="use dtype bfloat16, or device cpu, or run the model in one process",
                param="dtype",
            )
        if self.kv_cache_dtype != "auto" and (self.stages or joins):
            raise UsageError(
                "keys and values in int8 are not implemented for a model that is divided over stages",
                hint="run the model in one process, or use kv_cache_dtype auto",
                param="kv_cache_dtype",
            )
        idle = [name for name in _OF_STAGES if getattr(self, name) is not None and not (self.stages or joins)]
        idle += [name for name, default in _OF_NODES.items() if getattr(self, name) != default and not joins]
        if idle:
            raise UsageError(
                f"{idle[0]} has no effect here: the model is not divided over "
                + ("stages" if idle[0] in _OF_STAGES else "nodes"),
                hint="leave the setting out, or say where the stages are",
                param=idle[0],
            )
        if not 0.0 <= self.replan_after_s < float("inf"):
            raise UsageError(f"replan_after_s must be 0 or more, not {self.replan_after_s}")
        if not 0.0 < self.replay_timeout_s < float("inf"):
            raise UsageError(f"replay_timeout_s must be above 0, not {self.replay_timeout_s}")


def no_drafts(why: str, param: str = "speculate") -> UsageError:
    """Return the error of a configuration that asks for drafts which the engine cannot compute."""
    if param == "draft_model":
        return UsageError(why, hint="leave draft_model out", cli_hint="leave --draft-model out", param=param)
    return UsageError(
        why,
        hint="leave speculate out, or use speculate auto: drafts where the engine can draft",
        cli_hint="leave --speculate out, or use --speculate auto: drafts where the engine can draft",
        param="speculate",
    )
