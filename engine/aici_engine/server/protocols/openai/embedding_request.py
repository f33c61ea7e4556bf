"""The request of `/v1/embeddings`."""

import asyncio
from typing import Annotated, Literal

from pydantic import Field

from aici_base.errors import UsageError
from aici_engine.config import MAX_PRIORITY
from aici_engine.pooling_kinds import Pooling
from aici_engine.prompt_check import check_prompt_len, check_prompt_tokens
from aici_engine.server.errors import LongPromptError, about
from aici_engine.server.protocols.openai.completion_request import Prompts
from aici_engine.server.protocols.openai.fields import MAX_SALT
from aici_engine.server.protocols.strict_body import StrictBody
from aici_engine.server.service.embeddings import check_embeddings
from aici_engine.server.service.service import Generation, Service


class EmbeddingRequest(StrictBody):
    """`pooling`, `truncate_prompt_tokens`, `priority` and `cache_salt` are this server's own. `user` is a label without
    effect."""

    input: Prompts
    model: str | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    encoding_format: Literal["float", "base64"] = "float"
    user: str | None = None
    pooling: Pooling = "mean"
    truncate_prompt_tokens: Annotated[int, Field(ge=-1)] | None = None
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, lt=MAX_PRIORITY)] = 0
    cache_salt: Annotated[str, Field(min_length=1, max_length=MAX_SALT)] | None = None

    async def generations(self, service: Service) -> list[Generation]:
        """Return the inputs, tokenized and checked. Raises UsageError for the first that is wrong."""
        check_embeddings(service)
        size = service.info.states_size
        if self.dimensions is not None and self.dimensions > size:
            raise UsageError(
                f"dimensions is {self.dimensions}: the vectors of {service.name} have {size}", param="dimensions"
            )
        made: list[Generation] = []
        for given in self.input:
            tokens = await self._tokens(service, len(made), given)
            made.append(
                Generation(
                    prompt=tokens,
                    pooling=self.pooling,
                    priority=self.priority,
                    cache_salt=self.cache_salt,
                    is_whole=True,
                )
            )
            await asyncio.sleep(0)  # a list may be long: other requests have their turn
        return made

    async def _tokens(self, service: Service, index: int, given: str | list[int]) -> list[int]:
        kept = self._keep_last(service)
        with about(f"input.{index}" if len(self.input) > 1 else "input"):
            if isinstance(given, str):
                tokens = await service.tokenize(given, keep_last=kept) if given else []
                if not tokens:
                    raise UsageError("an input without text has no embedding")
                return tokens
            check_prompt_tokens(given, service.info.vocab_size, param="")
            tokens = given if kept is None else given[-kept:]
            try:
                check_prompt_len(len(tokens), service.info.max_len, room=0, param="")
            except UsageError as error:
                raise LongPromptError(error.message, hint=error.hint) from error
            return tokens

    def _keep_last(self, service: Service) -> int | None:
        """Return how many tokens at the end of an input are kept; None for all. -1: as many as the context takes."""
        kept = self.truncate_prompt_tokens
        if kept == 0:
            raise UsageError("truncate_prompt_tokens is 0: an input has a token", param="truncate_prompt_tokens")
        return service.info.max_len if kept == -1 else kept
