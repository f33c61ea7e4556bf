"""The checks of a request that need no tokenizer: parameters out of range, and parameters that exclude each other."""

from aici_base.errors import UsageError
from aici_engine.config import MAX_PRIORITY
from aici_engine.pooling_kinds import POOLINGS
from aici_engine.request import Request

_WITHOUT_CONTROLLER = ("ignore_eos", "min_tokens", "stop_token_ids", "bad_tokens")
"""Sampling parameters that do not go with a controller."""


def check_request(request: Request, *, prompt_len: int, vocab_size: int, has_states: bool) -> None:
    """Raise UsageError for a request that the engine cannot serve. `has_states`: the engine computes embeddings."""
    for token in request.sampling.logit_bias:
        if not 0 <= token < vocab_size:
            raise UsageError(f"logit_bias has token {token}: tokens are 0 to {vocab_size - 1}", param="logit_bias")
    first = request.score_from
    if first is not None and not 0 <= first < prompt_len:
        raise UsageError(f"score_from is {first}: the prompt has tokens 0 to {prompt_len - 1}", param="score_from")
    if not -MAX_PRIORITY <= request.priority < MAX_PRIORITY:
        raise UsageError(
            f"priority is {request.priority}: it may be from {-MAX_PRIORITY} to {MAX_PRIORITY - 1}", param="priority"
        )
    if request.pooling is not None:
        _check_pooling(request, has_states=has_states)
    given = {name: getattr(request.sampling, name) for name in _WITHOUT_CONTROLLER}
    names = ["score_from"] * (first is not None) + [name for name, value in given.items() if value]
    if request.controller is not None and names:
        name = names[0]
        raise UsageError(
            f"{name} does not go with a controller", hint=f"send a request without a controller for {name}", param=name
        )


def _check_pooling(request: Request, *, has_states: bool) -> None:
    if not has_states:
        raise UsageError(
            "this engine computes no embeddings: its model is divided over stages",
            hint="run the model in one process",
            param="pooling",
        )
    if request.pooling not in POOLINGS:
        raise UsageError(f"pooling is {request.pooling!r}", hint=f"use {' or '.join(POOLINGS)}", param="pooling")
    if request.controller is not None or request.score_from is not None:
        other = "a controller" if request.controller is not None else "score_from"
        raise UsageError(f"pooling does not go with {other}: an embedding has no output", param="pooling")
