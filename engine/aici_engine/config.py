"""What an engine is told when it is made. Values, checked once."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from aici_base.errors import UsageError
from aici_engine.sampling_params import SamplingParams as SamplingParams

Dtype = Literal["auto", "float32", "bfloat16", "int8", "int4"]
"""Of the weights. int8 and int4: by groups of 32 along a row (aici_engine.model.quantize), input embedding and output
head in 8 bits either way. auto: the smallest that loses nothing of the weights as they are stored."""
DTYPES: Final[tuple[Dtype, ...]] = get_args(Dtype)
DTYPE_HELP: Final = "Of the weights: float32, bfloat16, int8, int4, or auto: the smallest that loses nothing."
Device = Literal["auto", "cpu", "cuda"]
"""auto: a GPU if torch sees one, and the weights are not to be int8 or int4, which are the CPU's."""
DEVICES: Final[tuple[Device, ...]] = get_args(Device)
DEVICE_HELP: Final = "What computes: cpu, cuda (the first GPU that is visible), or auto: a GPU if there is one."
DEFAULT_DTYPE: Final[Dtype] = "auto"
MAX_PRIORITY = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """`model_dir`: a local folder in Hugging Face layout.

    The KV cache has `num_pages` pages of `page_size` tokens; without `page_size`, pages are as large as suits the
    device; without `num_pages` it may take `memory_fraction` of the device's memory that is available when the engine
    starts, but not more than all sequences at full length would need.
    `max_batch_tokens` bounds the tokens of one forward pass; every running sequence that decodes takes one of them.
    `prefill_slowdown`: while sequences decode, so much of prompts is computed beside them as makes a step about so many
    times as long; None sets no such bound. `max_context` only ever lowers the limit of the model. `prefix_cache`: what
    was computed of one sequence serves all that begin with the same tokens. `calm_rounds`: a controller that forced
    nothing for so many steps is told of tokens while the model computes, which waits for it no more. When it forces
    something after all, that costs a forward pass: about as much as twelve times not waiting saves.
    """

    model_dir: Path
    dtype: Dtype = DEFAULT_DTYPE
    device: Device = "auto"
    page_size: int | None = None
    num_pages: int | None = None
    memory_fraction: float = 0.4
    max_num_seqs: int = 32
    max_batch_tokens: int = 512
    prefill_slowdown: float | None = 4.0
    max_context: int | None = None
    num_threads: int | None = None
    prefix_cache: bool = True
    calm_rounds: int = 12

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype {self.dtype!r} is not known", hint=f"use one of {', '.join(DTYPES)}")
        if self.device not in DEVICES:
            raise UsageError(f"device {self.device!r} is not known", hint=f"use one of {', '.join(DEVICES)}")
        if self.device == "cuda" and self.dtype in ("int8", "int4"):
            raise UsageError(
                f"{self.dtype} weights are for the CPU: there are no such kernels for a GPU here",
                hint="use dtype bfloat16, float32 or auto, or device cpu",
            )
        for name in (
            "page_size",
            "num_pages",
            "max_num_seqs",
            "max_batch_tokens",
            "max_context",
            "num_threads",
            "calm_rounds",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")
        cores = os.cpu_count() or 1
        if self.num_threads is not None and self.num_threads > cores:
            raise UsageError(
                f"{self.num_threads} threads are asked for (num_threads): this machine has {cores} cores",
                hint="threads that share a core wait for each other",
            )
        if not 0.0 < self.memory_fraction <= 1.0:
            raise UsageError(f"memory_fraction must be in (0, 1], not {self.memory_fraction}")
        if self.prefill_slowdown is not None and not 1.0 <= self.prefill_slowdown < float("inf"):
            raise UsageError(
                f"prefill_slowdown must be a number from 1, not {self.prefill_slowdown}",
                hint="1 computes as little of prompts beside other requests as can be, 4 is usual",
            )
        if self.max_batch_tokens <= self.max_num_seqs:
            raise UsageError(
                f"max_batch_tokens ({self.max_batch_tokens}) must exceed max_num_seqs ({self.max_num_seqs})",
                hint="else prompts would wait for ever while every sequence decodes",
            )
