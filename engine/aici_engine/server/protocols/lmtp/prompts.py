"""From the parts of a prompt to tokens, and the buffers that parts may name."""

from typing import TypeAlias

from aici_base.errors import NotFoundError, UsageError
from aici_engine.server.protocols.lmtp.messages import BufferRef, Prompt
from aici_engine.server.service.service import Service

_MAX_BUFFERS = 64

Parts: TypeAlias = str | list[list[int] | str]
"""A prompt whose buffers have been looked up."""


class Buffers:
    """Tokens by name, for one connection: at most 64 names, none longer than `max_len` tokens."""

    def __init__(self) -> None:
        self._tokens: dict[str, list[int]] = {}
        self._written: set[str] = set()

    def write(self, name: str) -> None:
        """A stream begins that leaves its tokens under this name at its end. UsageError if another one does."""
        self._check_quiet(name)
        if name not in self._tokens and len(self._tokens.keys() | self._written) >= _MAX_BUFFERS:
            raise UsageError(f"there are {_MAX_BUFFERS} buffers", hint="forget one: BUFFER with its prompt null")
        self._written.add(name)

    def written(self, name: str, tokens: list[int] | None) -> None:
        """The stream has ended. With None, or nothing, it came to nothing: what was there before stays."""
        self._written.discard(name)
        if tokens:
            self._tokens[name] = tokens

    def forget(self, name: str) -> None:
        self._check_quiet(name)
        self._tokens.pop(name, None)

    def look_up(self, prompt: Prompt, *, max_len: int) -> Parts:
        """UsageError as soon as there are more than `max_len` tokens: a prompt may name a buffer many times."""
        if isinstance(prompt, str):
            return prompt
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
                _check_len(num_tokens, max_len)
        return parts

    def _get(self, name: str) -> list[int]:
        self._check_quiet(name)
        tokens = self._tokens.get(name)
        if tokens is None:
            raise NotFoundError(f"there is no buffer {name!r} on this connection")
        return tokens

    def _check_quiet(self, name: str) -> None:
        if name in self._written:
            raise UsageError(f"a stream still writes the buffer {name!r}", hint="wait for its end, or cancel it")


async def tokens_of(parts: Parts, service: Service) -> list[int]:
    """A text that is the whole prompt is tokenized as the model's tokenizer does by default; one among parts has no
    special tokens added."""
    if isinstance(parts, str):
        return await service.tokenize(parts)
    tokens: list[int] = []
    for part in parts:
        if isinstance(part, str):
            part = await service.tokenize(part, add_special_tokens=False)
        tokens += part
        _check_len(len(tokens), service.info.max_len)
    return tokens


def _check_len(num_tokens: int, max_len: int) -> None:
    if num_tokens >= max_len:
        raise UsageError(f"the prompt has {num_tokens} tokens or more: a sequence may have {max_len}, output included")
