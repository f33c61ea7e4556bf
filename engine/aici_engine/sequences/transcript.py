"""The tokens of a sequence and the text of its output."""

import itertools
from collections.abc import Sequence
from typing import Any

from aici_base.ids import TokenId
from aici_engine.events import Origin, Token
from aici_engine.text_stream import TextStream


class Transcript:
    """Changed by `aici_engine.event_output` alone, through `Sequence.append` and `Sequence.remove`.

    `tokens`: prompt and output for the model; the first `prompt_len` tokens are the prompt. `output`: the output tokens
    for listeners. If a controller goes on after an EOS, `output` has the EOS and `tokens` a substitute. `limit`: the
    most tokens, prompt included. `num_prompt_tokens`, `num_sampled` and `num_forced` include removed tokens. `logs`,
    `storage`: the guest's logs and writes of variables.
    """

    def __init__(
        self, prompt: list[TokenId], *, limit: int, max_tokens: int | None = None, stop: Sequence[str] = ()
    ) -> None:
        self.tokens = prompt
        self.prompt_len = len(prompt)
        self.limit = limit
        self.output: list[Token] = []
        self.text = TextStream(stop)
        self.num_prompt_tokens = len(prompt)
        self.num_sampled = 0
        self.num_forced = 0
        self.logs: list[str] = []
        self.storage: list[dict[str, Any]] = []
        self._max_tokens = max_tokens

    def fork(self) -> "tuple[Transcript, str]":
        """Return a copy with counts and logs from zero, and the text at the beginning of the copy's stream."""
        fork = Transcript(list(self.tokens), limit=self.limit, max_tokens=self._max_tokens)
        fork.prompt_len = self.prompt_len
        fork.output = list(self.output)
        fork.text, begin = self.text.fork()
        fork.num_prompt_tokens = 0
        return fork, begin

    @property
    def stop(self) -> str | None:
        """The stop string reached by the output, or `None`."""
        return self.text.stop

    @property
    def num_generated(self) -> int:
        """Tokens appended so far, sampled and forced, removed tokens included."""
        return self.num_sampled + self.num_forced

    def append(self, token: Token, kept_as: TokenId | None) -> str:
        """Append an output token; the model sees `kept_as`, if not `None`. Return the text that the stream gains."""
        self.tokens.append(token.token_id if kept_as is None else kept_as)
        self.output.append(token)
        if token.origin is Origin.SAMPLED:
            self.num_sampled += 1
        else:
            self.num_forced += 1
        return self.text.push(token.data)

    def num_kept(self, num_tokens: int, new: Sequence[TokenId], eos_tokens: frozenset[TokenId]) -> int:
        """Return how many of the last `num_tokens` tokens stay as they are if `new` replaces them.

        To a controller all `eos_tokens` are the same token.
        """
        tokens = [*self.tokens[: self.prompt_len], *(token.token_id for token in self.output)]
        pairs = zip(tokens[len(tokens) - num_tokens :], new, strict=False)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1] or eos_tokens.issuperset(pair), pairs)
        return sum(1 for _ in same)

    def remove(self, num_tokens: int) -> None:
        """Remove the last tokens: of the output, then of the prompt."""
        del self.tokens[len(self.tokens) - num_tokens :]
        del self.output[max(0, len(self.output) - num_tokens) :]
        self.text.backtrack(num_tokens)
        self.prompt_len = min(self.prompt_len, len(self.tokens))
        if self._max_tokens is not None:
            # `max_tokens` bounds the output, which begins earlier if tokens of the prompt were removed.
            self.limit = min(self.limit, self.prompt_len + self._max_tokens)
