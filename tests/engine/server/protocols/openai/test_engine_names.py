"""Fields that vLLM, SGLang and llama.cpp have beside OpenAI's, as their clients send them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from aici_base.errors import ForbiddenError
from aici_engine.events import FinishReason
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.constraints import module_id
from tests.support.fake_engine import says
from tests.support.fake_service import vocabulary
from tests.support.openai_api import Api, Json, samples

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER: Json = {"role": "user", "content": "Hi"}
BODIES: Mapping[str, Json] = {CHAT: {"messages": [USER]}, TEXT: {"prompt": "Hi"}}
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
GBNF = 'root ::= "yes" | "no"'
LARK = 'start: "yes" | "no"'
TAG: Json = {"type": "structural_tag", "format": {"type": "const_string", "value": "yes"}}

# Client: its spelling, and ours.
CONSTRAINTS: Mapping[str, tuple[Json, Json]] = {
    "outlines from_vllm, a type": ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, {"guided_json": SCHEMA}),
    "outlines from_vllm, a regex": ({"structured_outputs": {"regex": "[ab]"}}, {"guided_regex": "[ab]"}),
    "outlines from_sglang": ({"regex": "[ab]"}, {"guided_regex": "[ab]"}),
    "SGLang, ebnf": ({"ebnf": GBNF}, {"guided_grammar": GBNF, "grammar_syntax": "gbnf"}),
    "SGLang, json_schema": ({"json_schema": json.dumps(SCHEMA)}, {"guided_json": SCHEMA}),
    "vLLM, choice": ({"structured_outputs": {"choice": ["a", "b"]}}, {"guided_choice": ["a", "b"]}),
    "vLLM, grammar": ({"structured_outputs": {"grammar": GBNF}}, {"guided_grammar": GBNF}),
    "vLLM, json_object": ({"structured_outputs": {"json_object": True}}, {"guided_json": {"type": "object"}}),
    "vLLM, structural_tag": ({"structured_outputs": {"structural_tag": json.dumps(TAG)}}, {"structural_tag": TAG}),
    "vLLM, white space": (
        {"structured_outputs": {"json": SCHEMA, "whitespace_pattern": "[ \\n]*", "disable_any_whitespace": True}},
        {"guided_json": SCHEMA},
    ),
    "vLLM, no white space": (
        {"structured_outputs": {"json": SCHEMA, "whitespace_pattern": ""}},
        {"guided_json": SCHEMA, "schema_options": {"whitespace": "compact"}},
    ),
    "guidance VLLMModel": (
        {
            "guided_decoding_backend": "guidance",
            "guided_grammar": f"%llguidance {{}}\n{LARK}",
            "structured_outputs": {"grammar": f"%llguidance {{}}\n{LARK}"},
        },
        {"guided_grammar": f"%llguidance {{}}\n{LARK}"},
    ),
    "llama.cpp, grammar": ({"grammar": GBNF}, {"guided_grammar": GBNF, "grammar_syntax": "gbnf"}),
    "llama.cpp, json_schema": ({"json_schema": SCHEMA}, {"guided_json": SCHEMA}),
}


def meaning(call: Any) -> Any:
    """Return a constraint with its schema parsed: clients differ in the spaces of JSON."""
    return (call.controller, json.loads(call.argument) if call.argument.startswith("{") else call.argument)


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("client", CONSTRAINTS)
def test_a_constraint_under_the_name_of_another_engine(path: str, client: str) -> None:
    theirs, ours = CONSTRAINTS[client]
    told, usual = Api(), Api()
    told.answer(path, {**BODIES[path], **theirs})
    usual.answer(path, {**BODIES[path], **ours})
    assert meaning(told.engine.submitted[0]) == meaning(usual.engine.submitted[0])


WRONG: Mapping[str, tuple[Json, str, str]] = {
    "two": ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice", "together"),
    "two names": ({"regex": "b", "guided_regex": "a"}, "regex", "guided_regex and regex together"),
    "none": ({"structured_outputs": {}}, "structured_outputs", "has no constraint"),
    "unknown": ({"structured_outputs": {"rx": "a"}}, "structured_outputs.rx", "not supported"),
    "regex": ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "missing"),
    "white space": ({"json_schema": SCHEMA, "guided_whitespace_pattern": " "}, "guided_whitespace_pattern", "demands"),
    "pattern": ({"json_schema": SCHEMA, "guided_whitespace_pattern": "["}, "guided_whitespace_pattern", "no regular"),
    "slow pattern": (
        {"json_schema": SCHEMA, "guided_whitespace_pattern": "( ?|)" * 40 + "x"},
        "guided_whitespace_pattern",
        "has a group",
    ),
    "special": ({"skip_special_tokens": False}, "skip_special_tokens", "True"),
    "truncated": ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "is 0"),
    "prompt_logprobs": ({"prompt_logprobs": 1, "regex": "a"}, "prompt_logprobs", "regex together"),
    "repetition": ({"repeat_penalty": 1.1, "repetition_penalty": 1.2}, "repetition_penalty", "different values"),
}


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(path: str, name: str) -> None:
    fields, param, words = WRONG[name]
    status, message, got = Api().refusal(path, {**BODIES[path], **fields})
    assert (status, got) == (400, param)
    assert words in message


def prompt_text(api: Api) -> str:
    names = vocabulary()
    return "".join(names.decode([token]) or names.name_of(token) for token in api.engine.submitted[0].prompt)


TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
    "{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}{{ reasoning_effort or '' }}"
    "{% if add_generation_prompt %}[assistant:{% endif %}"
)


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, "[user:Hi][assistant:"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "[user:Hi]False[assistant:"),
        ({"chat_template_kwargs": {"enable_thinking": "<|im_end|>"}}, "[user:Hi]<|im_end|>[assistant:"),
        ({"reasoning_effort": "low"}, "[user:Hi]Truelow[assistant:"),
        ({"add_generation_prompt": False}, "[user:Hi]"),
        ({"continue_final_message": True, "messages": [USER, {"role": "assistant", "content": "We"}]},
         "[user:Hi][assistant:We"),
        ({"chat_template": "{{ messages[0].content }}?"}, "Hi?"),
    ],
)  # fmt: skip
def test_a_chats_template_is_told_what_the_request_says(fields: Json, prompt: str) -> None:
    """Qwen 3's `enable_thinking`, and vLLM's other fields about the prompt."""
    api = Api(template=TEMPLATE)
    api.answer(CHAT, {**BODIES[CHAT], **fields})
    assert prompt_text(api) == prompt
    assert vocabulary().encode("<|im_end|>")[0] not in api.engine.submitted[0].prompt


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"continue_final_message": True}, "continue_final_message", "needs an assistant's message"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages", "a field of its own"),
        ({"chat_template": "{% for"}, "messages", "cannot be read"),
        ({"chat_template": "{{ messages.__class__.__mro__ }}"}, "messages", "refuses"),
        ({"chat_template": "{{ raise_exception('no') }}"}, "messages", "no"),
    ],
)
def test_what_a_template_cannot_do_is_said(fields: Json, param: str, words: str) -> None:
    status, message, got = Api(template=TEMPLATE).refusal(CHAT, {**BODIES[CHAT], **fields})
    assert (status, got) == (400, param)
    assert words in message


def test_a_template_of_the_request_needs_a_right() -> None:
    Principal().check_template()
    with pytest.raises(ForbiddenError, match="chat_template"):
        Principal(name="eve", may_template=False).check_template()


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_prompt_is_cut_at_its_beginning(path: str) -> None:
    long: Json = {"prompt": "a b " * 3000} if path == TEXT else {"messages": [{**USER, "content": "a b " * 3000}]}
    for kept, num in ((5, 5), (-1, 2047)):
        api = Api()
        api.answer(path, {**long, "truncate_prompt_tokens": kept, "max_tokens": 1})
        assert len(api.engine.submitted[0].prompt) == num


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_the_stop_string_is_part_of_the_answer(path: str) -> None:
    script = says("a", reason=FinishReason.STOP_STRING, stop="END")
    fields = {"stop": ["END"], "include_stop_str_in_output": True}
    [choice] = Api(script).answer(path, {**BODIES[path], **fields})["choices"]
    assert (choice["message"]["content"] if path == CHAT else choice["text"]) == "aEND"
    chunks = [chunk["choices"][0] for chunk in Api(script).chunks(path, {**BODIES[path], **fields})]
    texts = [chunk["delta"].get("content", "") if path == CHAT else chunk["text"] for chunk in chunks]
    assert "".join(texts) == "aEND"


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_token_ids(path: str) -> None:
    body = {**BODIES[path], "return_token_ids": True}
    api = Api(samples(28, 216, 33))
    answer = api.answer(path, body)
    [choice] = answer["choices"]
    assert choice["token_ids"] == [28, 216, 33]
    prompt = api.engine.submitted[0].prompt
    assert (answer if path == CHAT else choice)["prompt_token_ids"] == prompt
    chunks = Api(samples(28, 216, 33)).chunks(path, body)
    assert [token for chunk in chunks for token in chunk["choices"][0].get("token_ids", [])] == [28, 216, 33]
    firsts = [chunk if path == CHAT else chunk["choices"][0] for chunk in chunks]
    assert [each["prompt_token_ids"] for each in firsts if "prompt_token_ids" in each] == [prompt]
    assert "token_ids" not in str(Api(samples(28)).answer(path, BODIES[path]))


def test_the_log_probabilities_of_a_prompt() -> None:
    script = samples(28, prompt_logprobs=[-0.5, -1.5])
    answer = Api(script).answer(TEXT, {"prompt": [5, 6, 7], "prompt_logprobs": 1})
    first, *others = answer["choices"][0]["prompt_logprobs"]
    assert first is None
    assert [{token: each["logprob"] for token, each in entry.items()} for entry in others] == [{"6": -0.5}, {"7": -1.5}]
    assert all(entry.keys() == {"logprob", "rank", "decoded_token"} for each in others for entry in each.values())
    assert answer["choices"][0]["logprobs"] is None
    both = Api(script).answer(TEXT, {"prompt": [5, 6, 7], "prompt_logprobs": 1, "logprobs": 0})
    assert len(both["choices"][0]["logprobs"]["tokens"]) == 1
    status, message, param = Api().refusal(CHAT, {**BODIES[CHAT], "tools": [WEATHER], "prompt_logprobs": 1})
    assert (status, param, "tools" in message) == (400, "prompt_logprobs", True)


WEATHER: Json = {"type": "function", "function": {"name": "weather"}}


def test_fields_without_effect() -> None:
    api, plain = Api(), Api()
    fields = {
        "skip_special_tokens": True,
        "spaces_between_special_tokens": False,
        "guided_decoding_backend": "xgrammar",
    }
    api.answer(CHAT, {**BODIES[CHAT], **fields, "repeat_penalty": 1.0})
    plain.answer(CHAT, BODIES[CHAT])
    assert api.engine.submitted == plain.engine.submitted
    assert module_id("regex")
