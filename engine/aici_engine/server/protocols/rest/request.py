"""What `POST /v1/run` is told, and the one sequence that it asks for."""

import math
from typing import Any

from pydantic import BaseModel, ConfigDict

from aici_base.errors import UsageError
from aici_engine.config import SamplingParams
from aici_engine.server.errors import ParameterError
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Generation, Service
from aici_engine.server.service.vocabulary import ModelVocabulary

NO_CONTROLLER = "none"


class RunMessage(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    role: str
    content: Any = None


class RunRequest(BaseModel):
    """The fields up to `max_tokens` are AICI's own; the others are this server's.

    `controller_arg`: any JSON; a string goes to the controller as it is. With the controller "none" it is the prompt.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    controller: str
    controller_arg: Any
    prompt: str | None = None
    messages: list[RunMessage] | None = None
    model: str | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int | None = None

    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_p: float = 0.0
    seed: int | None = None
    stop: list[str] = []
    logit_bias: dict[str, float] = {}
    logprobs: int | None = None
    ignore_eos: bool = False
    return_tokens: bool = False


async def generation_of(service: Service, who: Principal, request: RunRequest) -> Generation:
    """Raises for whatever is wrong with the request, but for what only the controller itself can find."""
    service.check_model(request.model)
    sampling = _sampling(request)
    prompt = _prompt(service, request)
    _check_length(len(prompt), request.max_tokens, service.info.max_len)
    call = None
    if request.controller != NO_CONTROLLER:
        call = await service.constraints.controller(who, request.controller, request.controller_arg)
    return Generation(prompt=prompt, sampling=sampling, controller=call)


def _sampling(request: RunRequest) -> SamplingParams:
    """The protocol's own words for its own fields."""
    _check(request.temperature >= 0.0, "temperature", f"must be non-negative, got {request.temperature}.")
    _check(math.isfinite(request.temperature), "temperature", f"must be finite, got {request.temperature}.")
    _check(0.0 < request.top_p <= 1.0, "top_p", f"must be in (0, 1], got {request.top_p}.")
    _check(
        request.top_k == -1 or request.top_k >= 1,
        "top_k",
        f"must be -1 (disable), or at least 1, got {request.top_k}.",
    )
    _check(
        request.max_tokens is None or request.max_tokens >= 1,
        "max_tokens",
        f"must be at least 1, got {request.max_tokens}.",
    )
    sampling = SamplingParams(
        repetition_penalty=request.repetition_penalty,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        min_p=request.min_p,
        seed=request.seed,
        max_tokens=request.max_tokens,
        stop=tuple(request.stop),
        logit_bias={_token(token): bias for token, bias in request.logit_bias.items()},
        logprobs=request.logprobs,
        ignore_eos=request.ignore_eos,
    )
    if sampling.greedy:
        _check(request.top_p == 1.0, "top_p", "must be 1 when using greedy sampling.")
        _check(request.top_k == -1, "top_k", "must be -1 when using greedy sampling.")
    return sampling


def _prompt(service: Service, request: RunRequest) -> list[int]:
    """Tokens; of an empty prompt, the model's start symbol alone."""
    vocabulary = service.vocabulary
    text = request.prompt
    if request.controller == NO_CONTROLLER and request.controller_arg:
        _check(isinstance(request.controller_arg, str), "controller_arg", "must be the prompt, a string.")
        _check(not text and request.messages is None, "controller_arg", "and another prompt exclude each other.")
        text = request.controller_arg
    if request.messages is not None:
        _check(not text, "messages", "and prompt exclude each other.")
        if service.template is None:
            raise ParameterError("messages", f"the model {service.name} has no chat template", hint="give a prompt")
        messages = [_plain(vocabulary, message.model_dump(exclude_unset=True)) for message in request.messages]
        # The template writes the special tokens at the start itself.
        return vocabulary.encode(service.template.render(messages), add_special_tokens=False)
    start = vocabulary.eos_token if vocabulary.bos_token is None else vocabulary.bos_token
    return vocabulary.encode(text or "") or [start]


def _check_length(prompt_len: int, max_tokens: int | None, max_len: int) -> None:
    wanted = prompt_len + (1 if max_tokens is None else max_tokens)
    if wanted > max_len:
        raise UsageError(
            f"This model's maximum context length is {max_len} tokens. However, you requested {wanted} tokens"
            f" ({prompt_len} in the prompt, {wanted - prompt_len} to generate).",
            hint="shorten the prompt or max_tokens",
        )


def _token(text: str) -> int:
    if not text.isdecimal():
        raise ParameterError("logit_bias", f"logit_bias is given for {text!r}: its keys are numbers of tokens")
    return int(text)


def _check(holds: bool, field: str, demand: str) -> None:
    if not holds:
        raise ParameterError(field, f"{field} {demand}")


def _plain(vocabulary: ModelVocabulary, message: Any) -> Any:
    """A message, or a part of one, whatever its shape, without special tokens."""
    if isinstance(message, str):
        return vocabulary.plain(message)
    if isinstance(message, list):
        return [_plain(vocabulary, part) for part in message]
    if isinstance(message, dict):
        return {name: _plain(vocabulary, part) for name, part in message.items()}
    return message
