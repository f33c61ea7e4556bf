"""Converts the parts of a prompt to tokens, and keeps the buffers that parts may name."""

import asyncio
from typing import TypeAlias

from aici_base.errors import NotFoundError, UsageError
from aici_engine.prompt_check import check_prompt_len
from aici_engine.server.protocols.lmtp.messages import BufferRef, Prompt
from aici_engine.server.service.service import Service

MAX_PARTS = 10_000
"""Texts and buffers of a prompt."""
_MAX_BUFFERS = 64

Parts: TypeAlias = str | list[list[int] | str]
"""A prompt with tokens in the place of buffers."""


class Buffers:
    """The buffers of one connection: tokens by name. At most 64 buffers, each of at most `max_len` tokens."""

    def __init__(self) -> None:
        self._tokens: dict[str, list[int]] = {}
        self._written: set[str] = set()

    def write(self, name: str) -> None:
        """Reserve a name for a stream's tokens, stored at the end of the stream.

        Raises UsageError if another stream has reserved the name, or if all 64 names are taken.
        """
        self._check_quiet(name)
        if name not in self._tokens and len(self._tokens.keys() | self._written) >= _MAX_BUFFERS:
            raise UsageError(
                f"this connection has {_MAX_BUFFERS} buffers, the limit",
                hint="forget a buffer: send BUFFER with its name and prompt null",
            )
        self._written.add(name)

    def written(self, name: str, tokens: list[int] | None) -> None:
        """Store the tokens of a stream that has ended. With None or no tokens, the old tokens stay."""
        self._written.discard(name)
        if tokens:
            self._tokens[name] = tokens

    def forget(self, name: str) -> None:
        self._check_quiet(name)
        self._tokens.pop(name, None)

    def look_up(self, prompt: Prompt, *, max_len: int) -> Parts:
        """Replace buffer names by tokens. Raises UsageError as soon as the prompt has `max_len` tokens.

        The check is early because a prompt may name a large buffer many times.
        """
        if isinstance(prompt, str):
            return prompt
        if len(prompt) > MAX_PARTS and sum(not isinstance(part, int) for part in prompt) > MAX_PARTS:
            raise UsageError(f"the prompt has more than {MAX_PARTS} texts and buffers", hint="join the texts")
        parts: list[list[int] | str] = [[]]
        num_tokens = 0
        for part in prompt:
            gain = [] if part is None else [part] if isinstance(part, int) else part
            if isinstance(gain, BufferRef):
                gain = self._get(gain.buffer)
            if isinstance(gain, str):
                parts += [gain, []]
            else:
                assert isinstance(parts[-1], list)
                parts[-1] += gain
                num_tokens += len(gain)
                check_prompt_len(num_tokens, max_len)
        return parts

    def _get(self, name: str) -> list[int]:
        self._check_quiet(name)
        tokens = self._tokens.get(name)
        if tokens is None:
            raise NotFoundError(f"this connection has no buffer {name!r}")
        return tokens

    def _check_quiet(self, name: str) -> None:
        if name in self._written:
            raise UsageError(
                f"an open stream still writes the buffer {name!r}",
                hint="wait for the stream's end, or cancel the stream",
            )


async def tokens_of(parts: Parts, service: Service) -> list[int]:
    """Return the tokens of a prompt.

    If the prompt is one text, the tokenizer adds its special tokens. A text among other parts gets no special tokens.
    """
    if isinstance(parts, str):
        return await service.tokenize(parts)
    tokens: list[int] = []
    for part in parts:
        if isinstance(part, str):
            part = await service.tokenize(part, add_special_tokens=False)
            await asyncio.sleep(0)  # there may be many: other requests have their turn
        tokens += part
        check_prompt_len(len(tokens), service.info.max_len)
    return tokens
