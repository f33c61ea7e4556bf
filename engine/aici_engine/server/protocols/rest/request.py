"""The request of `POST /v1/run`, and the sequence to generate for it."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from aici_base.errors import UsageError
from aici_engine.chat.messages import plain_messages
from aici_engine.chat.template import ChatTemplate
from aici_engine.parameter import Api
from aici_engine.sampling_params import SamplingParams, from_request
from aici_engine.server.gateway.body_shape import MAX_MESSAGES
from aici_engine.server.protocols.sampling_fields import with_sampling_fields
from aici_engine.server.protocols.schema_fields import SchemaFields
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Generation, Service
from aici_engine.vocabulary import ModelVocabulary

NO_CONTROLLER = "none"


class RunMessage(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    role: str
    content: Any = None


@with_sampling_fields(Api.REST)
class RunRequest(BaseModel):
    """`controller_arg` is any JSON; a string goes to the controller as it is.

    With the controller "none", `controller_arg` is the prompt. `schema_options`, for the controller "json_schema": how
    the schema is read; an option in `controller_arg` wins.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    controller: str
    controller_arg: Any
    prompt: str | None = None
    messages: Annotated[list[RunMessage], Field(max_length=MAX_MESSAGES)] | None = None
    model: str | None = None
    return_tokens: bool = False
    schema_options: SchemaFields | None = None
    if TYPE_CHECKING:
        logit_bias: dict[str, float]
        logprobs: int | None
        explain: int | None


async def generation_of(service: Service, principal: Principal, request: RunRequest) -> Generation:
    """Return the sequence of a request.

    Raises AiciError for an invalid request; only the controller itself can find further errors.
    """
    sampling = _sampling(request)
    prompt = await _prompt(service, request)
    _check_length(len(prompt), sampling.max_tokens, service.info.max_len)
    call = None
    if request.controller != NO_CONTROLLER:
        call = await service.constraints.of(principal).controller(request.controller, _argument(request))
    return Generation(prompt=prompt, sampling=sampling, controller=call)


def _argument(request: RunRequest) -> Any:
    argument = request.controller_arg
    if request.schema_options is None:
        return argument
    _check(request.controller == "json_schema", "schema_options", "needs the controller json_schema.")
    _check(isinstance(argument, dict), "controller_arg", "must be an object with a schema.")
    return request.schema_options.model_dump() | argument


def _sampling(request: RunRequest) -> SamplingParams:
    biases = {_token(token): bias for token, bias in request.logit_bias.items()}
    sampling = from_request(Api.REST, request, logit_bias=biases)
    # The engine takes these; upstream AICI refuses them.
    _check(sampling.top_k != 0, "top_k", "must be -1 (disable), or at least 1, got 0.")
    if sampling.greedy:
        _check(sampling.top_p == 1.0, "top_p", "must be 1 when using greedy sampling.")
        _check(sampling.top_k == -1, "top_k", "must be -1 when using greedy sampling.")
    return sampling


async def _prompt(service: Service, request: RunRequest) -> list[int]:
    """Return the prompt tokens. An empty prompt becomes the model's start symbol."""
    vocabulary = service.vocabulary
    text = request.prompt
    if request.controller == NO_CONTROLLER and request.controller_arg:
        _check(isinstance(request.controller_arg, str), "controller_arg", "must be the prompt, a string.")
        _check(not text and request.messages is None, "controller_arg", "and another prompt exclude each other.")
        text = request.controller_arg
    if request.messages is not None:
        _check(not text, "messages", "and prompt exclude each other.")
        if service.template is None:
            raise UsageError(f"messages: {service.name} has no chat template", hint="use prompt", param="messages")
        template, messages = service.template, request.messages
        rendered = await service.templates.with_own(lambda: _rendered(template, vocabulary, messages))
        # The template's text already contains the special tokens of the beginning.
        return await service.tokenize(rendered, add_special_tokens=False, room=1)
    start = vocabulary.eos_token if vocabulary.bos_token is None else vocabulary.bos_token
    return await service.tokenize(text or "", room=1) or [start]


def _rendered(template: ChatTemplate, vocabulary: ModelVocabulary, messages: list[RunMessage]) -> str:
    said = [message.model_dump(exclude_unset=True) for message in messages]
    return template.render(plain_messages(vocabulary.plain, said))


def _check_length(prompt_len: int, max_tokens: int | None, max_len: int) -> None:
    """Raise UsageError, as upstream AICI does, if `max_tokens` are more than the context leaves."""
    if max_tokens is not None and prompt_len + max_tokens > max_len:
        wanted = prompt_len + max_tokens
        raise UsageError(
            f"This model's maximum context length is {max_len} tokens. However, you requested {wanted} tokens"
            f" ({prompt_len} in the prompt, {wanted - prompt_len} to generate).",
            hint="shorten the prompt or max_tokens",
        )


def _token(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"logit_bias has {text!r}: the keys are token numbers", param="logit_bias")
    return int(text)


def _check(holds: bool, field: str, demand: str) -> None:
    if not holds:
        raise UsageError(f"{field} {demand}", param=field)
