"""The request of `/v1/completions`, and the turns that the request needs."""

import asyncio
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter

from aici_base.errors import UsageError
from aici_engine.parameter import Api
from aici_engine.prompt_check import check_prompt_len, check_prompt_tokens
from aici_engine.server.errors import about
from aici_engine.server.protocols.chat.turn import TurnRequest
from aici_engine.server.protocols.constraint_fields import controller_call
from aici_engine.server.protocols.openai.fields import SamplingFields
from aici_engine.server.protocols.openai.response import variants
from aici_engine.server.protocols.sampling_fields import with_sampling_fields
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Service

_MAX_PROMPTS = 2048


Tokens = Annotated[list[int], Field(min_length=1)]
_TOKENS = TypeAdapter(list[Tokens], config=ConfigDict(strict=True))


def _listed(value: Any) -> Any:
    """Return a list of prompts. A single prompt, text or tokens, becomes a list of length 1."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value or isinstance(value[0], str):
        return value
    if isinstance(value[0], list) and len(value) > _MAX_PROMPTS:
        raise ValueError(f"at most {_MAX_PROMPTS} prompts are allowed, not {len(value)}")
    return _TOKENS.validate_python(value if isinstance(value[0], list) else [value])


Prompts = Annotated[
    list[str] | list[Tokens],
    Field(min_length=1, max_length=_MAX_PROMPTS),
    BeforeValidator(_listed, json_schema_input_type=str | list[str] | Tokens | list[Tokens]),
]


@dataclass(frozen=True, slots=True)
class Prompt:
    """`text`: the client's text, or the decoded tokens."""

    text: str
    tokens: list[int]


@with_sampling_fields(Api.OPENAI_COMPLETIONS)
class CompletionRequest(SamplingFields):
    prompt: Prompts
    echo: bool = False
    best_of: Annotated[int, Field(ge=1, le=128)] | None = None
    if TYPE_CHECKING:
        logprobs: int | None

    @property
    def num_made(self) -> int:
        """Answers to generate per prompt. The response contains the best `n` of them."""
        return self.n if self.best_of is None else self.best_of

    async def prompts(self, service: Service) -> list[Prompt]:
        made: list[Prompt] = []
        for prompt in self.prompt:
            made.append(await self._prompt(service, prompt))
            await asyncio.sleep(0)  # a list may be long: other requests have their turn
        return made

    async def turns(self, service: Service, principal: Principal, prompts: list[Prompt]) -> list[TurnRequest]:
        """Return `num_made` turns per prompt, in the order of the prompts."""
        if self.num_made < self.n:
            raise UsageError(f"best_of is {self.best_of}, less than n, which is {self.n}", param="best_of")
        if self.num_made > self.n and self.stream:
            raise UsageError(
                "best_of together with stream",
                hint="set stream to false: the best is known at the end",
                param="best_of",
            )
        sampling = self.scored(self.sampling(service, Api.OPENAI_COMPLETIONS))
        if self.num_made > self.n:
            # The best answers are those with the highest log-probabilities.
            sampling = replace(sampling, logprobs=sampling.logprobs or 0)
        controller = await controller_call(service, principal, self)
        scored = (self.echo and self.logprobs is not None) or self.prompt_logprobs is not None
        if scored and controller is not None:
            raise UsageError(
                f"echo with logprobs and {self.asked()[0]} together", hint="leave out one of the three", param="echo"
            )
        return list(
            itertools.chain.from_iterable(
                variants(
                    TurnRequest(
                        prompt=prompt.tokens,
                        sampling=sampling,
                        controller=controller,
                        score_from=0 if scored else None,
                        priority=self.priority,
                        cache_salt=self.cache_salt,
                        is_whole=not self.stream,
                        keeps_stop=self.include_stop_str_in_output,
                    ),
                    self.num_made,
                )
                for prompt in prompts
            )
        )

    async def _prompt(self, service: Service, prompt: str | list[int]) -> Prompt:
        vocabulary, kept = service.vocabulary, self.keep_last(service)
        if isinstance(prompt, str):
            start = vocabulary.eos_token if vocabulary.bos_token is None else vocabulary.bos_token
            with about("prompt"):
                tokens = await service.tokenize(prompt, keep_last=kept) or [start]
            return Prompt(prompt if kept is None else vocabulary.decode(tokens), tokens)
        prompt = prompt if kept is None else prompt[-kept:]
        check_prompt_len(len(prompt), service.info.max_len, room=0)
        check_prompt_tokens(prompt, service.info.vocab_size)
        return Prompt(vocabulary.decode(prompt), prompt)
