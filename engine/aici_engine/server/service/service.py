"""Service: what every protocol uses. Tokenizing, checking constraints, and opening streams for admitted sequences."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aici_base.errors import UnavailableError, UsageError
from aici_controllers.store import Store
from aici_engine.chat.settings import ChatSettings
from aici_engine.chat.template import ChatTemplate
from aici_engine.config import BACKGROUND_PRIORITY, SamplingParams
from aici_engine.pooling_kinds import Pooling
from aici_engine.prompt_check import check_prompt_len
from aici_engine.server.config import RequestLimits
from aici_engine.server.errors import LongPromptError
from aici_engine.server.link import wire
from aici_engine.server.link.model_client import ModelClient
from aici_engine.server.link.stream import EngineStream
from aici_engine.server.link.wire import EngineInfo
from aici_engine.server.service.admission import Admission, Principal
from aici_engine.server.service.constraints import CheckedCall, Constraints
from aici_engine.server.service.template_processes import TemplateProcesses
from aici_engine.server.telemetry.metrics import Metrics
from aici_engine.vocabulary import ModelVocabulary

_SHORT_TEXT = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One sequence to generate, tokenized and checked. The fields mean the same as in the engine's `Request`.

    `is_whole`: the client gets the answer as a whole, so that another engine can begin the answer again.
    """

    prompt: list[int]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    controller: CheckedCall | None = None
    score_from: int | None = None
    pooling: Pooling | None = None
    priority: int = 0
    cache_salt: str | None = None
    is_whole: bool = False
    prediction: list[int] = field(default_factory=list)


class Service:
    """The service for one model.

    `name`: the model's name in responses. `store`: the controllers. `metrics`, `constraints`: of the server, if it has
    several models.
    """

    def __init__(
        self,
        client: ModelClient,
        *,
        model_dir: Path,
        name: str,
        admission: Admission,
        limits: RequestLimits | None = None,
        store: Store | None = None,
        metrics: Metrics | None = None,
        constraints: Constraints | None = None,
        chat_settings: ChatSettings | None = None,
        templates: TemplateProcesses | None = None,
    ) -> None:
        self.client = client
        self.name = name
        self.admission = admission
        self.model_dir = model_dir
        self.metrics = metrics or Metrics()
        self.limits = limits or RequestLimits()
        self.store = store or Store()
        self.chat_settings = chat_settings or ChatSettings()
        self.constraints = constraints or Constraints(self.store)
        self.vocabulary = ModelVocabulary(model_dir)
        self.templates = templates or TemplateProcesses()
        self.template = ChatTemplate.of(model_dir, self.templates.own)
        client.on_guest_time = admission.budgets.spend_guest_time

    @property
    def info(self) -> EngineInfo:
        """The engine's sizes. Raises UnavailableError before the first engine is up."""
        if self.client.info is None:
            raise UnavailableError("the engine is not up", hint="the engine is starting: try again")
        return self.client.info

    async def tokenize(
        self, text: str, *, add_special_tokens: bool = True, room: int = 0, keep_last: int | None = None
    ) -> list[int]:
        """Return the tokens of `text`, or the last `keep_last` of them.

        Raises LongPromptError if no sequence has `room` for more tokens after them.
        A text with too many characters is refused before it is tokenized. Long texts are tokenized in a thread, so
        other requests are not delayed.
        """
        longest = self.info.max_len * self.vocabulary.longest_token
        if len(text) > longest:
            raise LongPromptError(
                f"the prompt has {len(text)} characters: {self.info.max_len} tokens have at most {longest}"
            )
        if len(text) <= _SHORT_TEXT:
            tokens = self.vocabulary.encode(text, add_special_tokens=add_special_tokens)
        else:
            tokens = await asyncio.to_thread(self.vocabulary.encode, text, add_special_tokens=add_special_tokens)
        if keep_last is not None:
            tokens = tokens[-keep_last:]
        # The protocol names the field.
        try:
            check_prompt_len(len(tokens), self.info.max_len, room=room, param="")
        except UsageError as error:
            raise LongPromptError(error.message, hint=error.hint) from error
        return tokens

    @contextlib.asynccontextmanager
    async def admit(self, principal: Principal, num_sequences: int) -> AsyncIterator[None]:
        """Admit sequences as `Admission.admit`. Raises UnavailableError without an engine.

        Once admitted, a request outlives its engine: see `EngineClient.open`.
        """
        self.client.check_up()
        async with self.admission.admit(principal, num_sequences):
            yield

    def start(self, principal: Principal, generation: Generation) -> EngineStream:
        """Start a sequence for a caller that was admitted. Leaving the returned stream's context ends the sequence.

        Raises ForbiddenError if the key may not ask for the priority, UnavailableError for a controller that could not
        be compiled when the server started.
        """
        principal.check_priority(generation.priority)
        call = generation.controller
        if call is not None and (lacking := self.info.lacking.get(call.module_id)) is not None:
            raise UnavailableError(
                f"the controller {lacking} could not be compiled when the engine started",
                hint="the server's log says why, such as a full disk",
            )
        running = self.admission.running
        request = running.begin(model=self.name, owner=principal.name, prompt_tokens=len(generation.prompt))
        submit = wire.Submit(
            generation.prompt,
            generation.sampling,
            controller=None if call is None else call.module_id,
            argument=None if call is None else call.argument,
            score_from=generation.score_from,
            pooling=generation.pooling,
            prediction=generation.prediction,
            priority=_in_background(generation.priority) if principal.is_background else generation.priority,
            # Prefix-cache hits reveal earlier prompts. A key hits only prompts of its own.
            salt=repr((principal.name, generation.cache_salt)),
            share=principal.share,
        )
        watch = running.watching(request, self.admission.counting(principal, self.metrics.watch(self.name)))
        stream = self.client.open(submit, is_whole=generation.is_whole, watch=watch)
        running.opened(request, stream)
        self.admission.budgets.spend_tokens(principal.name, len(generation.prompt))
        if not principal.is_background:
            stream.expire_after(self.limits.request_timeout_s)
        return stream

    @contextlib.asynccontextmanager
    async def open(self, principal: Principal, generations: Sequence[Generation]) -> AsyncIterator[list[EngineStream]]:
        """Admit and start all sequences, or raise RateLimitError. All sequences end with the context."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.admit(principal, len(generations)))
            yield [await stack.enter_async_context(self.start(principal, each)) for each in generations]


def _in_background(priority: int) -> int:
    """Return the priority of a line of a batch. Lines keep their order among themselves."""
    return 2 * BACKGROUND_PRIORITY + max(-BACKGROUND_PRIORITY, min(priority, BACKGROUND_PRIORITY))
