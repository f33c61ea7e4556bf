"""Sampling parameters of a request: keywords, in place of the fields of SamplingParams."""

from typing import Any, Final

from aici.constraints import Constraint
from aici_engine.sampling_params import SamplingOptions, SamplingParams, from_options

DEFAULT_MAX_TOKENS: Final = 256


def sampling_params(
    given: SamplingParams | None, options: SamplingOptions, constraint: Constraint[Any] | None
) -> SamplingParams:
    """Return `given` with fields replaced by `options`.

    Without `given`, decoding is greedy, and the output has at most 256 tokens; the output of a script has as many as
    the context leaves.
    """
    if given is None:
        is_script = constraint is not None and constraint.is_script
        given = SamplingParams(temperature=0.0, top_k=0, max_tokens=None if is_script else DEFAULT_MAX_TOKENS)
    return from_options(options, base=given)
