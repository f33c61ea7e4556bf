"""Every field of the official SDKs' request types is honoured, accepted without effect, or refused by name."""

import typing
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
from anthropic.types import message_create_params
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from pydantic import BaseModel
from typing_extensions import is_typeddict

from aici_engine.server.protocols.anthropic.schema import MessagesRequest
from aici_engine.server.protocols.openai.chat_request import ChatRequest
from aici_engine.server.protocols.openai.completion_request import CompletionRequest
from aici_engine.server.protocols.openai.embedding_request import EmbeddingRequest

CASES: dict[str, tuple[Any, type[BaseModel]]] = {
    "chat": (chat_create_params.CompletionCreateParamsStreaming, ChatRequest),
    "completions": (completion_create_params.CompletionCreateParamsStreaming, CompletionRequest),
    "embeddings": (embedding_create_params.EmbeddingCreateParams, EmbeddingRequest),
    "messages": (message_create_params.MessageCreateParamsStreaming, MessagesRequest),
}
# A field of a field is `outer.inner`; the fields of all variants of a message or a block stand together. What is listed
# stands for the fields inside of it too, but for fields that another list names.
HONOURED = {
    "chat": """
        frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages modalities model n
        parallel_tool_calls presence_penalty reasoning_effort response_format seed stop stream stream_options
        temperature tool_choice tools top_logprobs top_p
    """,
    "completions": """
        best_of echo frequency_penalty logit_bias logprobs max_tokens model n presence_penalty prompt seed stop stream
        stream_options temperature top_p
    """,
    "embeddings": "dimensions encoding_format input model",
    "messages": """
        max_tokens messages model output_config stop_sequences stream system tool_choice tools
    """,
}
WITHOUT_EFFECT = {
    "chat": """
        messages.content.prompt_cache_breakpoint metadata prediction prompt_cache_key prompt_cache_options
        prompt_cache_retention response_format.json_schema.description response_format.json_schema.name
        safety_identifier service_tier store user verbosity
    """,
    "completions": "user",
    "embeddings": "user",
    "messages": """
        cache_control messages.content.cache_control messages.content.content.cache_control messages.content.data
        messages.content.signature metadata output_config.effort service_tier speed system.cache_control thinking
        tools.cache_control tools.eager_input_streaming
    """,
}
# Refused because of a value: the field itself is declared, and refuses all values but those without effect.
REFUSED_VALUES = {
    "chat": "function_call functions stream_options.include_obfuscation",
    "completions": "stream_options.include_obfuscation",
    "embeddings": "",
    "messages": """
        container diagnostics inference_geo messages.content.caller messages.content.citations
        messages.content.toolset_name messages.content.content.citations system.citations tools.allowed_callers
        tools.defer_loading tools.input_examples
    """,
}
REFUSED = {
    "chat": """
        audio messages.audio messages.content.file messages.content.image_url messages.content.input_audio
        messages.function_call messages.tool_calls.custom moderation tool_choice.custom tools.custom web_search_options
    """,
    "completions": "suffix",
    "embeddings": "",
    "messages": """
        messages.content.content.content messages.content.content.context messages.content.content.encrypted_content
        messages.content.content.encrypted_stdout messages.content.content.error_code
        messages.content.content.error_message messages.content.content.file_type
        messages.content.content.is_file_update messages.content.content.lines messages.content.content.new_lines
        messages.content.content.new_start messages.content.content.num_lines messages.content.content.old_lines
        messages.content.content.old_start messages.content.content.page_age messages.content.content.retrieved_at
        messages.content.content.return_code messages.content.content.source messages.content.content.start_line
        messages.content.content.state_changes messages.content.content.stderr messages.content.content.stdout
        messages.content.content.tabs messages.content.content.title messages.content.content.tool_name
        messages.content.content.tool_references messages.content.content.total_lines
        messages.content.content.transformations messages.content.content.url messages.content.context
        messages.content.file_id messages.content.source messages.content.title messages.content.transformations
        tools.allowed_domains tools.blocked_domains tools.citations tools.configs tools.max_characters
        tools.max_content_tokens tools.max_uses tools.response_inclusion tools.url_sources
        tools.use_cache tools.user_location
    """,
}
LISTS = (HONOURED, WITHOUT_EFFECT, REFUSED_VALUES, REFUSED)
HEADERS = {"messages": {"user_profile_id", "workspace_id"}}
FREE = {
    "prediction.content",
    "prompt_cache_options",
    "thinking",
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
