"""Every field of the official SDKs' request types is honoured, accepted without effect, or refused by name."""

import typing
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
from anthropic.types import message_create_params
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params
from pydantic import BaseModel
from typing_extensions import is_typeddict

from aici_engine.server.protocols.anthropic.schema import MessagesRequest
from aici_engine.server.protocols.openai.chat_request import ChatRequest
from aici_engine.server.protocols.openai.completion_request import CompletionRequest
from aici_engine.server.protocols.openai.embedding_request import EmbeddingRequest
from aici_engine.server.protocols.responses.request import ResponseRequest
from docs.generators.sdk_fields import HONOURED, REFUSED, REFUSED_VALUES, WITHOUT_EFFECT

CASES: dict[str, tuple[Any, type[BaseModel]]] = {
    "chat": (chat_create_params.CompletionCreateParamsStreaming, ChatRequest),
    "completions": (completion_create_params.CompletionCreateParamsStreaming, CompletionRequest),
    "embeddings": (embedding_create_params.EmbeddingCreateParams, EmbeddingRequest),
    "responses": (response_create_params.ResponseCreateParamsStreaming, ResponseRequest),
    "messages": (message_create_params.MessageCreateParamsStreaming, MessagesRequest),
}
LISTS = (HONOURED, WITHOUT_EFFECT, REFUSED_VALUES, REFUSED)
HEADERS = {"messages": {"user_profile_id", "workspace_id"}}
BY_TYPE = {"responses": ("input.", "tools.", "tool_choice.")}
"""The fields of items and of tools depend on their types, and other types are refused by name: other tests."""
FREE = {
    "text.format.schema",
    "prediction.content",
    "prompt_cache_options",
    "tools.input_schema",
    "messages.content.prompt_cache_breakpoint",
}
"""Fields whose inner fields are any JSON here, or a text."""


def fields_of(kind: Any, outer: str = "", within: tuple[Any, ...] = ()) -> Iterator[str]:
    """Yield the paths of all fields of a type, and of the types inside of it."""
    if is_typeddict(kind):
        if kind not in within:
            for name, hint in get_type_hints(kind).items():
                yield outer + name
                yield from fields_of(hint, f"{outer}{name}.", (*within, kind))
    else:
        for part in get_args(kind):
            yield from fields_of(part, outer, within)


def listed(path: str, names: set[str]) -> str:
    """Return the longest of `names` that is `path` or stands around it."""
    return max((name for name in names if path == name or path.startswith(f"{name}.")), key=len, default="")


def is_declared(schema: dict[str, Any], path: str) -> bool:
    """Whether the JSON Schema of a request has a field."""
    found: list[Any] = [schema]
    for name in path.split("."):
        found = [inner for outer in found for each in variants(schema, outer) for inner in properties(each, name)]
    return bool(found)


def properties(schema: dict[str, Any], name: str) -> Iterator[Any]:
    if name in schema.get("properties", {}):
        yield schema["properties"][name]


def variants(root: dict[str, Any], schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in schema:
        yield from variants(root, root["$defs"][schema["$ref"].rpartition("/")[2]])
        return
    yield schema
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from variants(root, part)
    if isinstance(schema.get("items"), dict):
        yield from variants(root, schema["items"])


@pytest.mark.parametrize("protocol", CASES)
def test_every_field_of_the_sdk_is_in_one_of_the_lists(protocol: str) -> None:
    kind, model = CASES[protocol]
    schema = model.model_json_schema()
    honoured, without_effect, refused_values, refused = (set(each[protocol].split()) for each in LISTS)
    every = honoured | without_effect | refused_values | refused
    assert len(every) == sum(map(len, (honoured, without_effect, refused_values, refused))), "a field in two lists"
    paths = set(fields_of(kind)) - HEADERS.get(protocol, set())
    paths = {path for path in paths if not path.startswith(BY_TYPE.get(protocol, ()))}
    assert every - paths == set(), "not a field of the SDK"
    unknown = [path for path in sorted(paths) if not listed(path, every)]
    assert unknown == []
    for path in sorted(paths):
        name = listed(path, every)
        is_free = any(path.startswith(f"{free}.") for free in FREE)
        if name in refused or (name in refused_values and path != name):
            assert name in refused_values or not is_declared(schema, path), f"{path} is accepted"
        elif not is_free:
            assert is_declared(schema, path), f"{path} is refused"


def test_typing_is_read() -> None:
    assert "messages.tool_calls.function.arguments" in set(fields_of(CASES["chat"][0]))
    assert typing.get_type_hints(CASES["completions"][0]).keys() >= {"prompt", "suffix"}
