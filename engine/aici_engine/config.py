"""What an engine is told when it is made, and what a request may ask of the sampler. Values, checked once."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from aici_base.errors import UsageError

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
MAX_STOPS = 32
MAX_LOGPROBS = 20
MAX_PRIORITY = 1 << 31
_MAX_BIAS = 1e30
_SHOWN_CHARS = 80
"""Far enough from the end of f32 for sums."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is drawn: `logit_bias`, a controller's mask, then the steps in the order of the fields.

    `repetition_penalty` divides (or multiplies) the logits of tokens in the prompt or the output; `presence_penalty`
    and `frequency_penalty` are subtracted for tokens of the output, the latter times their count. `temperature` 0 is
    greedy. `top_k` 0 or -1, `top_p` 1 and `min_p` 0 switch those steps off. Without `seed` each run differs.
    `max_tokens` bounds the output, forced tokens included; None: what the context leaves; 0: nothing is generated.

    `stop`: the output's text ends before the first of these, and generation with it: before that which is complete
    first, and of those that end at the same place the longest, however the text is cut into tokens. `logit_bias` is
    added to the logits of its tokens. `ignore_eos`: without a controller, generation goes on after EOS.

    `logprobs` k: the log-probability of each output token, and the k likeliest. That is the log-softmax, in natural
    logarithms, of the logits after bias and mask, before penalties, temperature, top-k, top-p and min-p: a token that
    had to be has 0.0, and only tokens that may be are listed, so that all are finite. None: nothing is computed.
    """

    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    logprobs: int | None = None
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        _check(0.0 < self.repetition_penalty < float("inf"), "repetition_penalty", self.repetition_penalty, "above 0")
        for name in ("presence_penalty", "frequency_penalty"):
            _check(-2.0 <= getattr(self, name) <= 2.0, name, getattr(self, name), "from -2 to 2")
        _check(0.0 <= self.temperature < float("inf"), "temperature", self.temperature, "0 (greedy) or above")
        _check(
            isinstance(self.top_k, int) and self.top_k >= -1,
            "top_k",
            self.top_k,
            "a whole number from 1, or 0 or -1 to switch it off",
        )
        _check(0.0 < self.top_p <= 1.0, "top_p", self.top_p, "above 0 and at most 1")
        _check(0.0 <= self.min_p <= 1.0, "min_p", self.min_p, "from 0 to 1")
        _check(self.seed is None or isinstance(self.seed, int), "seed", self.seed, "a whole number")
        tokens = self.max_tokens
        _check(
            tokens is None or (isinstance(tokens, int) and tokens >= 0), "max_tokens", tokens, "a whole number from 0"
        )
        self._check_output()

    def _check_output(self) -> None:
        _check(
            isinstance(self.stop, tuple)
            and len(self.stop) <= MAX_STOPS
            and all(isinstance(stop, str) and stop for stop in self.stop),
            "stop",
            repr(self.stop),
            f"a tuple of at most {MAX_STOPS} strings, none of them empty",
        )
        # Half the vocabulary may be in it: nothing is formatted for what is well.
        for token, bias in self.logit_bias.items():
            if not (isinstance(token, int) and isinstance(bias, int | float) and abs(bias) <= _MAX_BIAS):
                wanted = f"whole numbers of tokens, with numbers of at most {_MAX_BIAS:g} either way"
                _check(False, "logit_bias", f"{bias!r} for token {token!r}", wanted)
        k = self.logprobs
        _check(
            k is None or (isinstance(k, int) and 0 <= k <= MAX_LOGPROBS),
            "logprobs",
            k,
            f"a whole number from 0 to {MAX_LOGPROBS}",
        )

    @property
    def greedy(self) -> bool:
        # Below this, dividing logits by the temperature overflows f32; the spec's engine draws the same line.
        return self.temperature < 1e-5

    @property
    def penalizes(self) -> bool:
        return self.repetition_penalty != 1.0 or bool(self.presence_penalty or self.frequency_penalty)


def _check(holds: bool, name: str, value: object, wanted: str) -> None:
    if not holds:
        shown = str(value)
        shown = shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}..."
        raise UsageError(f"{name} is {shown}", hint=f"{name} must be {wanted}")
