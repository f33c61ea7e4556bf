"""A model for turns of a chat that writes a given text, whatever generations the turn makes of it.

Every character is a token; so is every special token. The model fails the test if a generation does not continue its
text, or if the constraint of a generation refuses its text.
"""

import contextlib
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import jsonschema

from aici_engine.chat.turn import GenerationEnd, Removed, Scores, Text
from aici_engine.sampling_params import SamplingParams
from tests.support.chat_templates import ENDS, SPECIAL_TOKENS

_FIRST_SPECIAL = 0x110000
_CALL_ID = re.compile(r"\[CALL_ID\]\w{9}")
_NAMES = re.compile("|".join(map(re.escape, SPECIAL_TOKENS)))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A constraint. `kind`: regex or json."""

    kind: str
    text: str


def encode(text: str) -> list[int]:
    tokens: list[int] = []
    at = 0
    for name in _NAMES.finditer(text):
        tokens += [*map(ord, text[at : name.start()]), _FIRST_SPECIAL + SPECIAL_TOKENS.index(name[0])]
        at = name.end()
    return tokens + list(map(ord, text[at:]))


def decode(tokens: Sequence[int]) -> str:
    return "".join(
        SPECIAL_TOKENS[token - _FIRST_SPECIAL] if token >= _FIRST_SPECIAL else chr(token) for token in tokens
    )


_ENDS = set(encode("".join(ENDS)))


@dataclass
class ScriptedModel:
    """`answer`: the whole text that the model writes after `prompt`. `asked`: the generations so far."""

    prompt: str
    answer: str
    max_len: int = 100_000
    piece: int = 3
    asked: list[tuple[str, SamplingParams, Wanted | None]] = field(default_factory=list)

    def encode(self, text: str) -> list[int]:
        return encode(text)

    def special_token(self, name: str) -> int | None:
        return encode(name)[0] if name in SPECIAL_TOKENS else None

    async def regex(self, pattern: str) -> Wanted:
        return Wanted("regex", pattern)

    async def json_schema(self, schema: str) -> Wanted:
        return Wanted("json", schema)

    @contextlib.asynccontextmanager
    async def generate(
        self, prompt: list[int], sampling: SamplingParams, controller: Wanted | None
    ) -> AsyncIterator["_ScriptedGeneration"]:
        before = decode(prompt)
        assert before.startswith(self.prompt)
        said = before[len(self.prompt) :]
        ids = iter(_CALL_ID.findall(said))  # the turn makes the ids of its calls
        self.answer = _CALL_ID.sub(lambda found: next(ids, found[0]), self.answer)
        assert self.answer.startswith(said), (said, self.answer)
        self.asked.append((said, sampling, controller))
        yield _ScriptedGeneration(encode(self.answer[len(said) :]), sampling, controller)


class _ScriptedGeneration:
    def __init__(self, tokens: list[int], sampling: SamplingParams, controller: Wanted | None) -> None:
        self._num_tokens = 0
        self._last: int | None = None
        self._stop: str | None = None
        self._is_full = False
        self._text = ""
        if controller is not None:
            tokens = encode(_constrained(controller, decode(tokens)))
        for token in tokens:
            if self._num_tokens == sampling.max_tokens:
                self._is_full = True
                break
            self._num_tokens += 1
            self._last = token
            if token in _ENDS or token in sampling.stop_token_ids:
                break
            self._text += chr(token) if token < _FIRST_SPECIAL else ""
            if stop := next((stop for stop in sampling.stop if self._text.endswith(stop)), None):
                self._stop, self._text = stop, self._text[: -len(stop)]
                break

    async def __aiter__(self) -> AsyncIterator[Text | Removed | Scores]:
        for at in range(0, len(self._text), 3):
            yield Text(self._text[at : at + 3])

    def end(self) -> GenerationEnd:
        return GenerationEnd(
            text=self._text,
            tail="",
            stop=self._stop,
            is_full=self._is_full,
            sampled=self._num_tokens,
            forced=0,
            cached=0,
            last_token=self._last,
        )


def _constrained(wanted: Wanted, text: str) -> str:
    """Return the beginning of a text that a constraint accepts: the longest match, or the JSON value."""
    if wanted.kind == "regex":
        found = next((text[:end] for end in range(len(text), -1, -1) if re.fullmatch(wanted.text, text[:end])), None)
        assert found is not None, (wanted.text, text)
        return found
    value, end = json.JSONDecoder().raw_decode(text)
    jsonschema.validate(value, json.loads(wanted.text))
    return text[:end]
