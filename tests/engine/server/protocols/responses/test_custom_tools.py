"""Custom tools: the input is a text, free or under a grammar."""

import json
from typing import Any

import pytest

from aici_controllers import constraints
from aici_controllers.grammar_check import accepts
from aici_engine.events import FinishReason
from aici_engine.server.protocols.responses.custom_input import InputReader
from tests.engine.server.protocols.responses.test_create import FUNCTION, NO_MORE, UP_TO_MARK, created, streamed
from tests.support.fake_engine import says
from tests.support.openai_api import Api, Json

SUM = 'start: INT (" + " INT)*\nINT: /[0-9]+/\n'
LARK: Json = {"type": "grammar", "syntax": "lark", "definition": SUM}
REGEX: Json = {"type": "grammar", "syntax": "regex", "definition": '(?i)[a-z"\\n]+'}


def tool(**fields: Any) -> Json:
    return {"type": "custom", "name": "run", **fields}


def test_a_free_text() -> None:
    scripts = [UP_TO_MARK, says('{"name":"run",', '"arguments":{"input":"a\\', "n\\u00e9", '"}', "}"), NO_MORE]
    _, call = created(Api(*scripts), tools=[tool()])["output"]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "run", "a\né")
    events = streamed(Api(*scripts), tools=[tool()])
    deltas = [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == "a\né"
    [done] = [event for event in events if event["type"] == "response.custom_tool_call_input.done"]
    assert done["input"] == "a\né"


@pytest.mark.parametrize(("form", "text"), [(LARK, "1 + 22"), (REGEX, 'a"\nb')])
def test_a_grammar(form: Json, text: str) -> None:
    pieces = [text[:2], text[2:], '"']
    scripts = [UP_TO_MARK, says('{"name": "run", ', '"arguments": '), says(*pieces), NO_MORE]
    api = Api(*scripts)
    tools = [tool(format=form), FUNCTION]
    response = created(api, tools=tools)
    assert response["tools"][0]["format"] == form
    assert response["output"][1]["input"] == text
    assert streamed(Api(*scripts), tools=tools)[-1]["response"]["output"][1]["input"] == text
    _, head, inner, more = api.engine.submitted
    assert head.argument == r'\{"name": "run", "arguments": |\{"name": "weather", "arguments": '
    assert more.prompt[: len(head.prompt)] == head.prompt
    assert len(inner.prompt) > len(head.prompt)


def test_a_function_beside_it() -> None:
    scripts = [says('{"name": "weather", "arguments": '), says('{"place":', ' "Rome"}'), NO_MORE]
    response = created(Api(*scripts), tools=[tool(format=LARK), FUNCTION], tool_choice="required")
    [call] = response["output"]
    assert (call["type"], call["arguments"]) == ("function_call", '{"place": "Rome"}')


def test_an_input_that_is_cut_short() -> None:
    scripts = [says('{"name": "run", "arguments": '), says("1 + ", reason=FinishReason.LENGTH)]
    response = created(Api(*scripts), tools=[tool(format=LARK)], tool_choice="required", max_output_tokens=9)
    assert (response["status"], response["output"][0]["input"]) == ("incomplete", "1 +")


def test_a_choice_of_tools() -> None:
    for choice in (
        {"type": "custom", "name": "run"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "run"}]},
    ):
        api = Api(says('{"name": "run", "arguments": '), says("1", '"'), NO_MORE)
        response = created(api, tools=[tool(format=LARK), FUNCTION], tool_choice=choice)
        assert response["tool_choice"] == choice
        assert api.engine.submitted[0].argument == r'\{"name": "run", "arguments": '
    api = Api()
    created(api, tools=[FUNCTION, tool()], tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [tool()]})


@pytest.mark.parametrize("form", [{**LARK, "definition": "start: ("}, {**REGEX, "definition": "("}])
def test_a_wrong_grammar_is_refused(form: Json) -> None:
    status, _, param = Api().refusal("/v1/responses", {"input": "Hi", "tools": [tool(format=form)]})
    assert (status, param) == (400, "tools")


def test_the_quote_ends_a_text() -> None:
    guest = constraints.quoted(SUM, "lark")
    cases = {'1 + 22"': True, "1 + 22": False, '1 +"': False, '1""': False}
    assert {text: accepts(guest.argument, text, syntax="y").accepted for text in cases} == cases
    assert constraints.quoted("(?i)a|b", "regex").argument == '(?i)(?:a|b)"'


@pytest.mark.parametrize("text", ["", "plain", 'a"b\\c\n\t', "é↩😀", "\\u0041", "\\ud83d\\ude00", "a\\ud83d b"])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pieces_of_an_input(text: str, size: int) -> None:
    is_escaped = "\\u" in text
    arguments = f'{{ "input" : "{text}"}}' if is_escaped else json.dumps({"input": text})
    reader = InputReader()
    found = "".join(reader.read(arguments[i : i + size]) for i in range(0, len(arguments), size))
    wanted = {"\\u0041": "A", "\\ud83d\\ude00": "😀", "a\\ud83d b": "a� b"}.get(text, text)
    assert found == wanted
