"""Log-probabilities in the two shapes of the protocol.

The values are those of `SamplingParams.logprobs`: computed after bias and constraint, before temperature and filters.
"""

import codecs
from collections.abc import Sequence
from typing import Any

from aici_engine.server.link.wire import Score, TokenOut
from aici_engine.server.protocols.chat.logprobs import is_text, token_logprobs, token_text
from aici_engine.vocabulary import ModelVocabulary


def chat_logprobs(vocabulary: ModelVocabulary, tokens: Sequence[TokenOut]) -> dict[str, Any]:
    """Return the `logprobs` object of a chat choice. EOS and other tokens without bytes are left out."""
    return {"content": token_logprobs(vocabulary, tokens), "refusal": None}


class CompletionLogprobs:
    """Builds the `logprobs` objects of a completion choice. `text_offset` counts characters of the choice's text.

    `top`: whether to list the likeliest tokens. `prompt`: the echoed text, which may contain names of special tokens.
    """

    def __init__(self, vocabulary: ModelVocabulary, *, top: bool, prompt: str = "") -> None:
        self._vocabulary = vocabulary
        self._top = top
        self._prompt = prompt
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def of(self, scores: Sequence[Score]) -> dict[str, Any]:
        offsets = []
        for token, _, _ in scores:
            offsets.append(self._offset)
            self._offset += self._len_of(token)
        return {
            "tokens": [self._name(token) for token, _, _ in scores],
            "token_logprobs": [logprob for _, logprob, _ in scores],
            "top_logprobs": [self._likeliest(score) for score in scores] if self._top else None,
            "text_offset": offsets,
        }

    def of_output(self, tokens: Sequence[TokenOut]) -> dict[str, Any]:
        return self.of([(token.token, token.logprob, token.top) for token in tokens])

    def _likeliest(self, score: Score) -> dict[str, float] | None:
        token, logprob, top = score
        if logprob is None:
            return None
        likeliest: dict[str, float] = {}
        # Two tokens may have the same text: the likelier token gets the entry.
        for each, its_logprob in (*top, (token, logprob)):
            likeliest.setdefault(self._name(each), its_logprob)
        return likeliest

    def _name(self, token: int) -> str:
        data = self._vocabulary.bytes_of(token)
        text = token_text(data) or self._vocabulary.name_of(token)
        return f"bytes:{text}" if data and not is_text(data) else text

    def _len_of(self, token: int) -> int:
        if data := self._vocabulary.bytes_of(token):
            return len(self._decoder.decode(data))
        name = self._vocabulary.name_of(token)
        return len(name) if name and self._prompt.startswith(name, self._offset) else 0
