"""Every protocol takes a structural tag, and the chat protocol takes it as a response format in both of its forms."""

import json

import pytest

from aici_controllers.constraints import structural_tag
from aici_engine.server.service.constraints import module_id
from tests.support.openai_api import Api, Json

CHAT: Json = {"model": "it", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
REQUESTS = [
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", {"prompt": "Hi"}),
    ("/v1/messages", CHAT),
    ("/v1/check", {}),
]
NAME: Json = {
    "type": "tag",
    "begin": "<n>",
    "content": {"type": "json_schema", "json_schema": {"enum": [1]}},
    "end": "</n>",
}
FORMAT: Json = {"format": {"type": "triggered_tags", "triggers": ["<n"], "tags": [NAME]}}
OLDER: Json = {"structures": [{"begin": "<n>", "schema": {"enum": [1]}, "end": "</n>"}], "triggers": ["<n"]}
ARGUMENT = structural_tag(json.dumps(FORMAT)).argument


@pytest.mark.parametrize(("path", "body"), REQUESTS)
@pytest.mark.parametrize("tag", [FORMAT, json.dumps(FORMAT), OLDER], ids=["object", "text", "older"])
def test_a_request_has_a_structural_tag(path: str, body: Json, tag: object) -> None:
    api = Api()
    answer = api.post(path, {**body, "structural_tag": tag})
    assert answer.status_code == 200, answer.text
    assert [(one.controller, one.argument) for one in api.engine.submitted] == [(module_id("grammar"), ARGUMENT)][
        : len(body)
    ]


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_a_wrong_one_is_refused_with_its_place(path: str, body: Json) -> None:
    answer = Api().post(path, {**body, "structural_tag": {"format": {"type": "tagg"}}})
    assert answer.status_code == 400
    assert "#/format/type: format 'tagg' is not known" in answer.text


@pytest.mark.parametrize("tag", [FORMAT, OLDER], ids=["newer", "older"])
def test_a_response_format(tag: Json) -> None:
    api = Api()
    api.answer("/v1/chat/completions", {**CHAT, "response_format": {"type": "structural_tag", **tag}})
    [submit] = api.engine.submitted
    assert (submit.controller, submit.argument) == (module_id("grammar"), ARGUMENT)


def test_wrong_response_formats() -> None:
    def refused(response_format: Json) -> str:
        answer = Api().post("/v1/chat/completions", {**CHAT, "response_format": response_format})
        assert answer.status_code == 400
        return str(answer.json()["error"]["param"]) + " " + str(answer.json()["error"]["message"])

    assert "response_format.format belongs to the type structural_tag" in refused({"type": "json_object", **FORMAT})
    assert "response_format" in refused({"type": "structural_tag"})
    assert "#: format is missing" in refused({"type": "structural_tag"})


def test_the_name_of_a_controller() -> None:
    api = Api()
    api.answer("/v1/chat/completions", {**CHAT, "controller": "structural_tag", "controller_arg": FORMAT})
    [submit] = api.engine.submitted
    assert (submit.controller, submit.argument) == (module_id("grammar"), ARGUMENT)
