"""Keyword shortcuts for SamplingParams."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypedDict

from aici.constraints import Constraint
from aici.errors import UsageError
from aici_engine.config import SamplingParams

DEFAULT_MAX_TOKENS: Final = 256


class SamplingOptions(TypedDict, total=False):
    """The fields of SamplingParams as keywords. `stop` is a text or several."""

    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int | None
    max_tokens: int | None
    stop: str | Sequence[str]
    logit_bias: Mapping[int, float]
    logprobs: int | None
    ignore_eos: bool


def sampling_params(
    given: SamplingParams | None, options: SamplingOptions, constraint: Constraint[Any] | None
) -> SamplingParams:
    """Return `given` with `options` in place of its fields.

    Without `given`, decoding is greedy, and the output has at most 256 tokens; the output of a script has as many as
    the context leaves.
    """
    fields: dict[str, Any] = dict(options)
    if unknown := fields.keys() - SamplingOptions.__annotations__.keys():
        raise UsageError(
            f"{', '.join(sorted(unknown))}: no such sampling parameter",
            hint=f"there are {', '.join(SamplingOptions.__annotations__)}",
        )
    if "stop" in fields:
        fields["stop"] = (fields["stop"],) if isinstance(fields["stop"], str) else tuple(fields["stop"])
    if given is None:
        is_script = constraint is not None and constraint.is_script
        given = SamplingParams(temperature=0.0, top_k=0, max_tokens=None if is_script else DEFAULT_MAX_TOKENS)
    return replace(given, **fields)
