"""Sampling parameters of a request: keywords, in place of the fields of SamplingParams."""

from typing import Any, Final

from aici.constraints import Constraint
from aici.errors import UsageError, shown_type
from aici_engine.sampling_params import SamplingOptions, SamplingParams, from_options

DEFAULT_MAX_TOKENS: Final = 256


def sampling_params(
    given: SamplingParams | None, options: SamplingOptions, constraint: Constraint[Any] | None
) -> SamplingParams:
    """Return `given` with fields replaced by `options`.

    Without `given`, decoding is greedy, and the output has at most 256 tokens; the output of a script has as many as
    the context leaves. Raise UsageError for a wrong parameter, and for a `constraint` or `given` of another type.
    """
    if constraint is not None and not isinstance(constraint, Constraint):
        raise UsageError(
            f"a constraint is made by regex, choice, json_schema and the like, not {shown_type(constraint)}",
            hint="for example aici.regex(...)",
        )
    if given is not None and not isinstance(given, SamplingParams):
        raise UsageError(
            f"sampling is a SamplingParams, not {shown_type(given)}", hint="or give keywords: temperature=0.7"
        )
    if given is None:
        is_script = constraint is not None and constraint.is_script
        given = SamplingParams(temperature=0.0, top_k=0, max_tokens=None if is_script else DEFAULT_MAX_TOKENS)
    return from_options(options, base=given)
