"""Tool calls in the form of the served model's template, through each protocol, over a scripted engine."""

from typing import Any

import pytest

from aici_engine.chat.settings import ChatSettings
from aici_engine.events import FinishReason
from tests.support.chat_templates import HERMES, LLAMA3, MISTRAL, MISTRAL_ARGS
from tests.support.fake_engine import Script, says
from tests.support.fake_service import vocabulary
from tests.support.openai_api import Api, Json

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
PLACE: Json = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
USER: Json = {"role": "user", "content": "Hi"}
BODIES: dict[str, Json] = {
    CHAT: {"messages": [USER], "tools": [{"type": "function", "function": {"name": "f", "parameters": PLACE}}]},
    RESPONSES: {"input": "Hi", "tools": [{"type": "function", "name": "f", "parameters": PLACE}]},
    MESSAGES: {"model": "it", "max_tokens": 50, "messages": [USER], "tools": [{"name": "f", "input_schema": PLACE}]},
}
ARGUMENTS = '{"place": "Rome"}'
LLAMA_MARK = says("", reason=FinishReason.STOP_STRING, stop='{"name":')
LLAMA_CALL = says('{"name": "f", ', f'"parameters": {ARGUMENTS}', "}")
FORMS: dict[str, tuple[str, tuple[Script, ...], str]] = {
    "llama3": (LLAMA3, (LLAMA_MARK, LLAMA_CALL), "<|end_header_id|>\n\n"),
    "mistral": (
        MISTRAL,
        (
            says("", reason=FinishReason.STOP_STRING, stop="[TOOL_CALLS]"),
            says(f'{{"name": "f", "arguments": {ARGUMENTS}}}'),
            says("]"),
        ),
        "[TOOL_CALLS] [",
    ),
    "mistral_args": (
        MISTRAL_ARGS,
        (says("", reason=FinishReason.STOP_STRING, stop="[TOOL_CALLS]"), says(ARGUMENTS), says("")),
        "[TOOL_CALLS]f[ARGS]",
    ),
}


def prompts(api: Api) -> list[str]:
    return [vocabulary().decode_with_names(submit.prompt) for submit in api.engine.submitted]


def calls(path: str, body: Json) -> list[tuple[str, Any]]:
    if path == CHAT:
        made = body["choices"][0]["message"].get("tool_calls") or []
        return [(call["function"]["name"], call["function"]["arguments"]) for call in made]
    if path == RESPONSES:
        return [(item["name"], item["arguments"]) for item in body["output"] if item["type"] == "function_call"]
    return [(block["name"], block["input"]) for block in body["content"] if block["type"] == "tool_use"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path", BODIES)
def test_the_form_of_the_template(form: str, path: str) -> None:
    template, scripts, end = FORMS[form]
    api = Api(*scripts, template=template)
    arguments = {"place": "Rome"} if path == MESSAGES else ARGUMENTS
    assert calls(path, api.answer(path, BODIES[path])) == [("f", arguments)]
    assert prompts(api)[1].endswith(end)
    assert (api.engine.submitted[0].controller, api.engine.submitted[1].controller is None) == (None, False)


@pytest.mark.parametrize("path", BODIES)
def test_a_forced_form_is_explained_to_the_model(path: str) -> None:
    api = Api(LLAMA_MARK, LLAMA_CALL)
    api.service.chat_settings = ChatSettings(tool_syntax="llama3")
    assert len(calls(path, api.answer(path, BODIES[path]))) == 1
    assert 'as JSON in this form, and nothing after that:\n{"name":"...","parameters":{...}}' in prompts(api)[0]


def test_a_forced_generic_form_leaves_the_templates_own_aside() -> None:
    api = Api(says("Hello"), template=HERMES)
    api.service.chat_settings = ChatSettings(tool_syntax="generic")
    api.answer(CHAT, BODIES[CHAT])
    assert "<tools>" not in prompts(api)[0]
    assert "You can call tools." in prompts(api)[0]


@pytest.mark.parametrize(("template", "is_own"), [(HERMES, True), (LLAMA3, False), (MISTRAL, True)])
def test_a_document_or_calls_takes_a_mark_in_text(template: str, is_own: bool) -> None:
    """A call of Llama 3 may look like the document, so that the generic form takes its place. To this tokenizer,
    Mistral's mark is text."""
    api = Api(says('{"place": "x"}'), template=template)
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": PLACE}}
    message = api.answer(CHAT, {**BODIES[CHAT], "response_format": form})["choices"][0]["message"]
    assert message["content"] == '{"place": "x"}'
    assert ("You can call tools." not in prompts(api)[0]) == is_own


def test_a_call_that_is_no_call_of_llama() -> None:
    """The mark in the middle of a text is text, and generation goes on behind it."""
    scripts = (says("See ", reason=FinishReason.STOP_STRING, stop='{"name":'), says(" 1}"))
    api = Api(*scripts, template=LLAMA3)
    message = api.answer(CHAT, BODIES[CHAT])["choices"][0]["message"]
    assert message["content"] == 'See {"name": 1}'
    assert "tool_calls" not in message
    chunks = Api(*scripts, template=LLAMA3).chunks(CHAT, BODIES[CHAT])
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == 'See {"name": 1}'
