"""Requests that vLLM cannot serve. `EngineConfig` checks settings, `engine_args` the flags of vLLM."""

from typing import TYPE_CHECKING, Final

from aici_base.errors import UsageError

if TYPE_CHECKING:
    from aici_engine.request import Request

MAX_BIAS: Final = 100.0
"""vLLM cuts biases beyond this."""
_NOT_WITH_CONTROLLER: Final = ("logprobs", "presence_penalty", "frequency_penalty")
_HINT: Final = "leave it out, or serve the model with --engine native"


def check_request(request: "Request") -> None:
    """Raise UsageError for a request that vLLM would serve otherwise than aici's own engine."""
    sampling = request.sampling
    refused = {
        "score_from": request.score_from is not None,
        "pooling": request.pooling is not None,
        "explain": sampling.explain is not None,
        "bad_tokens": bool(sampling.bad_tokens),
        "logit_bias": any(abs(bias) > MAX_BIAS for bias in sampling.logit_bias.values()),
    }
    for name, is_given in refused.items():
        if is_given:
            beyond = f" beyond {MAX_BIAS:g}" if name == "logit_bias" else ""
            raise UsageError(f"{name}{beyond} cannot be had with vLLM", hint=_HINT, param=name)
    if sampling.logprobs is not None and sampling.logit_bias:
        raise UsageError("vLLM's log-probabilities are without logit_bias", hint=_HINT, param="logprobs")
    if sampling.ignore_eos and sampling.min_tokens:
        raise UsageError("with vLLM, min_tokens does not go with ignore_eos", hint=_HINT, param="min_tokens")
    if request.controller is not None:
        for name in _NOT_WITH_CONTROLLER:
            if getattr(sampling, name) not in (None, 0.0):
                # A new row counts all earlier tokens as its prompt, and vLLM's log-probabilities are without the mask.
                raise UsageError(f"with vLLM, {name} does not go with a controller", hint=_HINT, param=name)
