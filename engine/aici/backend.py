"""Backends run requests: an engine in this process (`local`) or a server (`remote`), with the same events."""

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeAlias

from aici.constraints import Constraint, Messages
from aici.errors import AiciError, UsageError, shown_type
from aici.tools import FunctionTool
from aici_controllers.schema_check import SchemaKeywords
from aici_engine.events import Event
from aici_engine.sampling_params import SamplingParams

Sink: TypeAlias = Callable[[Event | AiciError], None]
"""Receives the events of a request, from any thread. The last is a FinishEvent or an error."""
Abort: TypeAlias = Callable[[], None]
"""Ends a request. The last event still comes. Idempotent; from any thread; never blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. A `prompt` is text, tokens, or a conversation, which goes through the model's chat template.

    `patient`: when a server has no room, the request waits and asks again, instead of failing.
    """

    prompt: str | Messages | tuple[int, ...]
    sampling: SamplingParams
    constraint: Constraint[Any] | None
    patient: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.prompt, str) or _are_tokens(self.prompt):
            return
        if not isinstance(self.prompt, list | tuple):
            raise UsageError(
                f"a prompt is a text, not {shown_type(self.prompt)}", hint="for a conversation, use chat or chat_stream"
            )
        check_messages(self.prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall:
    """One turn of a chat. `tool_choice` is `auto`, `none`, `required` or the name of a tool. `schema_options`: for the
    schemas of the tools."""

    messages: Messages
    sampling: SamplingParams
    constraint: Constraint[Any] | None
    tools: tuple[FunctionTool, ...]
    tool_choice: str
    parallel: bool
    schema_options: SchemaKeywords


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOutcome:
    """The end of a turn. `calls`: id, name and the JSON text of the arguments. `warnings`: about the tools' schemas.
    `reasoning`: what the model thought before its answer."""

    text: str
    calls: tuple[tuple[str, str, str], ...]
    finish_reason: Literal["stop", "length", "tool_calls"]
    prompt_tokens: int
    output_tokens: int
    warnings: tuple[str, ...] = ()
    reasoning: str = ""


@lru_cache(maxsize=8)
def digest(wasm: bytes) -> str:
    """Return the id of a module. Remembered for the same bytes: every request asks."""
    return hashlib.sha256(wasm).hexdigest()


def prompts_of(given: object) -> list[Any]:
    """Return the prompts of an argument with several. Raise UsageError for a type that holds no prompts."""
    if isinstance(given, bytes | bytearray | Mapping) or not isinstance(given, Iterable):
        raise UsageError(f"a prompt is a text or a list of texts, not {shown_type(given)}")
    return list(given)


def check_messages(messages: object) -> None:
    """Raise UsageError unless `messages` is a conversation: a sequence of mappings, not empty."""
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise UsageError(
            f"messages are a list, not {shown_type(messages)}", hint='[{"role": "user", "content": "..."}]'
        )
    if not messages:
        raise UsageError("there are no messages", hint="give at least one")
    for message in messages:
        if not isinstance(message, Mapping):
            raise UsageError(
                f"a message is a dict, not {shown_type(message)}", hint="a message has a role and a content"
            )


def _are_tokens(prompt: object) -> bool:
    return isinstance(prompt, tuple) and bool(prompt) and all(isinstance(token, int) for token in prompt)


class Cancel:
    """Ends the work of another thread, present and future."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: list[Callable[[], None]] = []
        self._is_set = False

    def set(self) -> None:
        with self._lock:
            self._is_set = True
            for end in self._ends:
                end()

    @contextlib.contextmanager
    def covering(self, end: Callable[[], None]) -> Iterator[None]:
        """Let `set` call `end` while the context lasts."""
        with self._lock:
            self._ends.append(end)
            if self._is_set:
                end()
        try:
            yield
        finally:
            with self._lock:
                self._ends.remove(end)


class Backend(Protocol):
    """Methods are called from any thread."""

    @property
    def model(self) -> str:
        """Return the name of the model."""

    def start(self, call: Call, sink: Sink) -> Abort:
        """Begin a request. Raise the error of a wrong request, or send the error to `sink`."""

    def chat(self, call: ChatCall, cancel: Cancel) -> ChatOutcome:
        """Run a turn of a chat to the end. Raise the error of a turn that fails."""

    def close(self) -> None:
        """End all requests and release everything. Idempotent."""
