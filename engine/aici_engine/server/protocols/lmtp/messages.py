"""The messages of LMTP: a command, a space, JSON. README.md in this folder explains every field."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from aici_base.errors import AiciError, TooLargeError, UsageError
from aici_controllers.notations.tree import GrammarSyntax
from aici_engine.parameter import Api
from aici_engine.server.errors import retry_after_s, status_of, text_of
from aici_engine.server.gateway.body_shape import MAX_VALUES, check_shape
from aici_engine.server.protocols.sampling_fields import with_sampling_members

_MAX_STREAM_ID_BYTES = 256
_SEARCHED = 1 << 20
_RETRY_AFTER_S = 1.0

_STREAM_ID = re.compile(r'"stream_id"\s*:\s*(-?\d+|"\w*")')
"""Finds the stream id in text that is not valid JSON: Python's encoder writes NaN and lone surrogates."""

NULL = Raw(b"null")
_NULLABLE = ("stream_id", "prompt", "scored")

TokenNumber: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 31)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=128)]


class BufferRef(Struct, forbid_unknown_fields=True):
    """A part of a prompt: the tokens of this connection's buffer `buffer`."""

    buffer: Name


Prompt: TypeAlias = str | list[TokenNumber | str | BufferRef | None]
"""One text, or parts in order. None adds nothing: clients without a beginning-of-text token send None."""


class _Stream(Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a message that opens a stream. `stream_id`: any JSON; replies carry the same bytes."""

    stream_id: Raw
    model: str
    prompt: Prompt
    text: bool | None = None
    buffer: Name | None = None

    @property
    def wants_text(self) -> bool:
        return isinstance(self.prompt, str) if self.text is None else self.text


@with_sampling_members(Api.LMTP)
class Generate(_Stream, kw_only=True):
    length_penalty: float = 1.0
    guided_regex: str | None = None
    guided_json: str | dict[str, Any] | bool | None = None
    guided_choice: Annotated[list[str], Meta(min_length=1)] | None = None
    guided_grammar: str | None = None
    grammar_syntax: GrammarSyntax | None = None
    structural_tag: str | dict[str, Any] | None = None
    controller: str | None = None
    controller_arg: Any = None
    schema_options: dict[str, Any] | None = None
    if TYPE_CHECKING:
        max_tokens: int
        logit_bias: dict[int, float] | None


@with_sampling_members(Api.LMTP)
class Score(_Stream, kw_only=True):
    """The sampling fields, which clients send with every message, have no effect: nothing is sampled."""

    scored: Prompt
    length_penalty: float = 1.0


class ModelInfo(Struct, kw_only=True, forbid_unknown_fields=True):
    stream_id: Raw
    model: str
    data: Any = None


class Cancel(Struct, kw_only=True, forbid_unknown_fields=True):
    stream_id: Raw


class Buffer(Struct, kw_only=True, forbid_unknown_fields=True):
    """Store the tokens of `prompt` in a buffer. With `prompt` None, forget the buffer.

    Every model has its own buffers, because tokens differ between models. `model`: by default the server's first.
    """

    stream_id: Raw
    model: str | None = None
    buffer: Name
    prompt: Prompt | None


class _Head(Struct):
    stream_id: Raw = NULL


Message: TypeAlias = Generate | Score | ModelInfo | Cancel | Buffer

_COMMANDS: Mapping[str, msgspec.json.Decoder[Any]] = {
    "GENERATE": msgspec.json.Decoder(Generate),
    "SCORE": msgspec.json.Decoder(Score),
    "MODEL_INFO": msgspec.json.Decoder(ModelInfo),
    "CANCEL": msgspec.json.Decoder(Cancel),
    "BUFFER": msgspec.json.Decoder(Buffer),
}
COMMANDS = tuple(_COMMANDS)
_head = msgspec.json.Decoder(_Head)


class MessageError(UsageError):
    """An invalid message. `stream_id`: NULL if the message has none.

    `opens_stream`: the message is GENERATE or SCORE, so the client waits for a stream's last item.
    """

    def __init__(self, message: str, *, hint: str = "", stream_id: Raw = NULL, opens_stream: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.stream_id = stream_id
        self.opens_stream = opens_stream


def parse(text: str) -> Message:
    """Return the message of a text frame. Raises MessageError for an invalid message."""
    command, _, body = text.partition(" ")
    decoder = _COMMANDS.get(command)
    if decoder is None:
        shown = command if len(command) <= 32 else command[:32] + "..."
        raise MessageError(
            f"{shown!r} is not a command",
            hint=f"a message is a command ({', '.join(_COMMANDS)}), a space, and JSON",
            stream_id=_stream_id(body),
        )
    opens_stream = command in ("GENERATE", "SCORE")
    try:
        # A mask of LMQL's is a bias with a key per token of the vocabulary.
        check_shape(body.encode(errors="replace"), "the message", max_members=MAX_VALUES)
        message: Message = _decoded(decoder, body)
    except (msgspec.MsgspecError, RecursionError, TooLargeError) as error:
        stream_id = _stream_id(body)
        opens_stream = opens_stream and stream_id is not NULL
        raise MessageError(f"{command}: {error}", stream_id=stream_id, opens_stream=opens_stream) from error
    # Raw is a view of the whole message. A copy lets the message be freed while the stream runs.
    message.stream_id = message.stream_id.copy()
    if not 0 < len(bytes(message.stream_id)) <= _MAX_STREAM_ID_BYTES or bytes(message.stream_id) == b"null":
        raise MessageError(f"{command}: stream_id must be JSON of at most {_MAX_STREAM_ID_BYTES} bytes and not null")
    return message


def _decoded(decoder: msgspec.json.Decoder[Any], body: str) -> Any:
    """Decode a message. A field that is null counts as absent, unless null has a meaning."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(body, type=dict[str, Raw])
        given = {name: field for name, field in fields.items() if name in _NULLABLE or bytes(field) != b"null"}
        if len(given) == len(fields):
            raise
        return decoder.decode(msgspec.json.encode(given))


def _stream_id(body: str) -> Raw:
    """Return the stream id of an invalid message if it can be found: a client may wait for the end of that stream."""
    try:
        data = bytes(_head.decode(body).stream_id)
    except (msgspec.MsgspecError, RecursionError):
        found = _STREAM_ID.search(body, 0, _SEARCHED)
        data = found[1].encode("utf-8", "replace") if found else b"null"
    return Raw(data) if len(data) <= _MAX_STREAM_ID_BYTES and data != b"null" else NULL


class TokenItem(Struct, kw_only=True):
    """One token of a stream. `top_logprobs`: GENERATE only, the token itself first. `text`: the text added.

    `warnings`, in the last item: parts of a schema that are not enforced.
    """

    token: int
    stream_id: Raw
    logprob: float
    finish_reason: Literal["stop", "length"] | None = None
    top_logprobs: dict[int, float] | UnsetType = UNSET
    text: str | UnsetType = UNSET
    warnings: tuple[str, ...] | UnsetType = UNSET


class BacktrackItem(Struct, kw_only=True):
    """A controller removed the last `backtrack` tokens of the stream."""

    stream_id: Raw
    backtrack: int


class ErrorItem(Struct, kw_only=True):
    """In TOKEN: the last item of a failed stream. In MSG: the reply to any other message that failed."""

    stream_id: Raw
    error: str
    code: str
    retryable: bool
    retry_after_s: float | UnsetType = UNSET

    @classmethod
    def of(cls, stream_id: Raw, error: AiciError) -> "ErrorItem":
        retryable = status_of(error) in (408, 429, 503)
        after_s = retry_after_s(error) or _RETRY_AFTER_S
        return cls(
            stream_id=stream_id,
            error=text_of(error),
            code=error.code,
            retryable=retryable,
            retry_after_s=after_s if retryable else UNSET,
        )


class CommandReply(Struct, kw_only=True):
    """A MSG item: the reply to MODEL_INFO, CANCEL or BUFFER."""

    stream_id: Raw
    model_info: dict[str, Any] | UnsetType = UNSET
    cancelled: bool | UnsetType = UNSET
    buffer: str | UnsetType = UNSET
    num_tokens: int | UnsetType = UNSET


class ServerEvent(Struct, kw_only=True):
    """A MSG item that the server sends on its own. `model`: which model became available or unavailable, where the
    server has several."""

    stream_id: None = None
    event: Literal["ready", "unavailable", "queued", "shutdown"]
    model: str | UnsetType = UNSET
    model_info: dict[str, Any] | UnsetType = UNSET
    queued: Raw | UnsetType = UNSET
    position: int | UnsetType = UNSET
    retry_after_s: float | UnsetType = UNSET


Item: TypeAlias = TokenItem | BacktrackItem | ErrorItem | CommandReply | ServerEvent
encode_item = msgspec.json.Encoder().encode


def frame(command: str, items: Iterable[bytes]) -> str:
    """Return a text frame. The JSON is always a list, because clients iterate over it."""
    return f"{command} [{b','.join(items).decode()}]"
