"""Deltas of a turn as events. The response object grows with the events, so a response that is not streamed is the
response of the last event."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from aici_base.errors import AiciError, RateLimitError, UsageError
from aici_engine.chat.tools import CallArguments, CallStart
from aici_engine.server.errors import text_of
from aici_engine.server.link.wire import TokenOut
from aici_engine.server.protocols.chat.logprobs import token_logprobs
from aici_engine.server.protocols.chat.turn import Delta, Removed, Text, Thought, TurnEnd
from aici_engine.server.protocols.responses.custom_input import InputReader
from aici_engine.server.protocols.responses.items import Item, new_id
from aici_engine.server.protocols.responses.response import Json, usage
from aici_engine.server.protocols.warnings import warning_field
from aici_engine.vocabulary import ModelVocabulary


class ResponseOutput:
    """Turns the deltas of one turn into events, and fills `response`.

    `custom_tools`: the names of tools whose input is a text.
    """

    def __init__(
        self,
        response: Json,
        vocabulary: ModelVocabulary,
        *,
        custom_tools: frozenset[str] = frozenset(),
        with_logprobs: bool = False,
        warnings: Sequence[str] = (),
    ) -> None:
        self.response = response
        self._vocabulary = vocabulary
        self._custom_tools = custom_tools
        self._with_logprobs = with_logprobs
        self._warnings = warnings
        self._num_events = 0
        self._open: _OpenMessage | _OpenCall | _OpenThought | None = None

    def begin(self) -> Iterator[Json]:
        yield self._event("response.created", response=self._snapshot())
        yield self._event("response.in_progress", response=self._snapshot())

    def of(self, delta: Delta) -> Iterator[Json]:
        match delta:
            case Thought(text):
                if text:
                    yield from self._thought(text)
            case Text(text, token):
                yield from self._text(text, token)
            case Removed(num_tokens):
                if isinstance(self._open, _OpenMessage):
                    self._open.remove(num_tokens)
            case CallStart(call_id, name):
                yield from self._close("completed")
                call = _OpenCall(call_id, name, is_custom=name in self._custom_tools)
                yield from self._begin(call)
            case CallArguments(text):
                assert isinstance(self._open, _OpenCall)
                if gained := self._open.add(text):
                    yield self._of_item(f"response.{self._open.field}.delta", delta=gained)
            case TurnEnd():
                yield from self._end(delta)

    def failed(self, error: AiciError) -> Json:
        """Return the event of a failure after the first event."""
        code = "server_error"
        if isinstance(error, UsageError):
            code = "invalid_prompt"
        elif isinstance(error, RateLimitError):
            code = "rate_limit_exceeded"
        self.response |= {"status": "failed", "error": {"code": code, "message": text_of(error)}}
        return self._event("response.failed", response=self._snapshot())

    def _text(self, text: str, token: TokenOut | None) -> Iterator[Json]:
        logprobs: list[Json] = []
        if self._with_logprobs and token is not None:
            logprobs = token_logprobs(self._vocabulary, [token])
        if not text and not logprobs:
            return
        if not isinstance(self._open, _OpenMessage):
            yield from self._close("completed")
            yield from self._begin(_OpenMessage())
        assert isinstance(self._open, _OpenMessage)
        self._open.add(text, logprobs)
        if text:
            yield self._of_part("response.output_text.delta", delta=text, logprobs=_short(logprobs))

    def _thought(self, text: str) -> Iterator[Json]:
        if not isinstance(self._open, _OpenThought):
            yield from self._begin(_OpenThought())
        assert isinstance(self._open, _OpenThought)
        self._open.text += text
        yield self._of_part("response.reasoning_text.delta", delta=text)

    def _begin(self, item: "_OpenMessage | _OpenCall | _OpenThought") -> Iterator[Json]:
        self._open = item
        self.response["output"].append(item.begun())
        yield self._event("response.output_item.added", output_index=self._index, item=item.begun())
        if isinstance(item, _OpenMessage):
            yield self._of_part("response.content_part.added", part=_output_text("", []))
        elif isinstance(item, _OpenThought):
            yield self._of_part("response.content_part.added", part=_reasoning_text(""))

    def _close(self, status: str, final_text: str | None = None) -> Iterator[Json]:
        """End the open item. `final_text`: without the text of removed tokens, which the deltas had."""
        item = self._open
        if isinstance(item, _OpenMessage):
            item.text = item.text if final_text is None else final_text
            part = _output_text(item.text, item.logprobs)
            logprobs = _short(item.logprobs)
            yield self._of_part("response.output_text.done", text=item.text, logprobs=logprobs)
            yield self._of_part("response.content_part.done", part=part)
        elif isinstance(item, _OpenThought):
            yield self._of_part("response.reasoning_text.done", text=item.text)
            yield self._of_part("response.content_part.done", part=_reasoning_text(item.text))
        elif isinstance(item, _OpenCall):
            yield self._of_item(f"response.{item.field}.done", **{item.key: item.text})
        if item is not None:
            ended = self.response["output"][-1] = item.ended(status)
            yield self._event("response.output_item.done", output_index=self._index, item=ended)
        self._open = None

    def _end(self, end: TurnEnd) -> Iterator[Json]:
        output = self.response["output"]
        if not output:
            yield from self._begin(_OpenMessage())
        is_cut = end.reason == "length"
        status = "incomplete" if is_cut else "completed"
        num_messages = sum(item["type"] != "reasoning" for item in output)
        yield from self._close(status, end.text if num_messages == 1 else None)
        details = {"reason": "max_output_tokens"} if is_cut else None
        self.response |= {
            "status": status,
            "completed_at": None if is_cut else int(time.time()),
            "incomplete_details": details,
            "usage": usage(end.usage),
            **warning_field(self._warnings),
        }
        yield self._event(f"response.{status}", response=self._snapshot())

    @property
    def _index(self) -> int:
        return len(self.response["output"]) - 1

    def _of_item(self, kind: str, **fields: Any) -> Json:
        assert self._open is not None
        return self._event(kind, item_id=self._open.item_id, output_index=self._index, **fields)

    def _of_part(self, kind: str, **fields: Any) -> Json:
        return self._of_item(kind, content_index=0, **fields)

    def _event(self, kind: str, **fields: Any) -> Json:
        number = self._num_events
        self._num_events += 1
        return {"type": kind, "sequence_number": number, **fields}

    def _snapshot(self) -> Json:
        return self.response | {"output": list(self.response["output"])}


class _OpenMessage:
    """The message that text is added to."""

    def __init__(self) -> None:
        self.item_id = new_id("msg")
        self.text = ""
        self.logprobs: list[Json] = []

    def add(self, text: str, logprobs: Sequence[Json]) -> None:
        self.text += text
        self.logprobs += logprobs

    def remove(self, num_tokens: int) -> None:
        del self.logprobs[max(0, len(self.logprobs) - num_tokens) :]

    def begun(self) -> Item:
        return self._item("in_progress", [])

    def ended(self, status: str) -> Item:
        return self._item(status, [_output_text(self.text, self.logprobs)])

    def _item(self, status: str, content: list[Json]) -> Item:
        return {"id": self.item_id, "type": "message", "status": status, "role": "assistant", "content": content}


class _OpenCall:
    """The call that arguments, or the input of a custom tool, are added to. `field`: in the names of its events."""

    def __init__(self, call_id: str, name: str, *, is_custom: bool) -> None:
        self.item_id = new_id("ctc" if is_custom else "fc")
        self._name = name
        self.text = ""
        self.is_custom = is_custom
        self.field = "custom_tool_call_input" if is_custom else "function_call_arguments"
        self.key = "input" if is_custom else "arguments"
        self._call_id = call_id
        self._reader = InputReader() if is_custom else None

    def add(self, arguments: str) -> str:
        """Return the text gained: arguments as they are, the input of a custom tool without JSON around it."""
        gained = arguments if self._reader is None else self._reader.read(arguments)
        self.text += gained
        return gained

    def begun(self) -> Item:
        return self._item("in_progress", "")

    def ended(self, status: str) -> Item:
        return self._item(status, self.text)

    def _item(self, status: str, text: str) -> Item:
        kind = "custom_tool_call" if self.is_custom else "function_call"
        item = {"id": self.item_id, "type": kind, "call_id": self._call_id, "name": self._name, self.key: text}
        return item if self.is_custom else item | {"status": status}


class _OpenThought:
    """The reasoning item that a thought is added to."""

    def __init__(self) -> None:
        self.item_id = new_id("rs")
        self.text = ""

    def begun(self) -> Item:
        return self._item("in_progress", [])

    def ended(self, status: str) -> Item:
        return self._item(status, [_reasoning_text(self.text)])

    def _item(self, status: str, content: list[Json]) -> Item:
        return {"id": self.item_id, "type": "reasoning", "summary": [], "content": content, "status": status}


def _reasoning_text(text: str) -> Json:
    return {"type": "reasoning_text", "text": text}


def _output_text(text: str, logprobs: Sequence[Json]) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


def _short(logprobs: Sequence[Json]) -> list[Json]:
    """Return log-probabilities as events have them: without bytes."""

    def short(entry: Json) -> Json:
        return {"token": entry["token"], "logprob": entry["logprob"]}

    return [short(entry) | {"top_logprobs": list(map(short, entry["top_logprobs"]))} for entry in logprobs]
