"""Chat templates against transformers' own rendering."""

import json
from pathlib import Path

import pytest

from aici_base.errors import UsageError
from aici_engine.chat.messages import PromptMessage, conversation_text
from aici_engine.chat.settings import ChatSettings
from aici_engine.chat.template import ChatTemplate, chat_prompt
from aici_engine.chat.tools import Tool
from tests.support.chat_templates import HERMES
from tests.support.model import default_model_dir

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": '  Hello\n<tag> & "quotes" ↩'},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "Bye"},
]

# Features of published templates: loop controls, namespaces, tojson, strftime_now, whitespace control, special tokens.
BUSY = """
{%- set ns = namespace(count=0) -%}
{{ bos_token }}
{%- for message in messages %}
    {%- if message.role == 'skip' %}{% continue %}{% endif %}
    {%- set ns.count = ns.count + 1 %}
    {{- '[' ~ message['role'] ~ ':' ~ message.content | trim ~ ']' }}
{%- endfor %}
{% if tools %}
    {{ tools | tojson }}
    {%- for tool in tools %}{{ tool | tojson(indent=2) }}{% endfor %}
{% endif %}
{{ ns.count }}{{ strftime_now('%Y') | length }}{{ messages[0] is mapping }}{{ eos_token }}
{%- if add_generation_prompt %} go{% endif %}
"""
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "é <b>", "parameters": {"a": [1, None]}}}]


def test_the_default_models_template_as_transformers_renders_it() -> None:
    from transformers import AutoTokenizer

    oracle = AutoTokenizer.from_pretrained(default_model_dir())
    template = ChatTemplate.of(default_model_dir())
    assert template is not None
    for talk in (TALK, TALK[1:], TALK[:3]):
        assert template.render(talk) == oracle.apply_chat_template(talk, add_generation_prompt=True, tokenize=False)
        wanted = oracle.apply_chat_template(talk, add_generation_prompt=True, tokenize=True, return_dict=False)
        assert chat_prompt(default_model_dir(), talk) == wanted


def test_a_busy_template_as_transformers_renders_it() -> None:
    from transformers import AutoTokenizer

    oracle = AutoTokenizer.from_pretrained(default_model_dir())
    oracle.chat_template = BUSY
    template = ChatTemplate(BUSY, {"bos_token": oracle.bos_token, "eos_token": oracle.eos_token}, name="busy")
    for tools in (None, TOOLS):
        wanted = oracle.apply_chat_template(TALK, tools=tools, add_generation_prompt=True, tokenize=False)
        assert template.render(TALK, tools=tools) == wanted


@pytest.mark.parametrize("in_file", [False, True])
def test_a_model_may_have_a_template_of_its_own_for_tools(tmp_path: Path, in_file: bool) -> None:
    """As Hermes 3 has: in a list of named templates, or in a folder of further templates."""
    plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
    templates = [{"name": "default", "template": plain}, {"name": "tool_use", "template": HERMES}]
    config = {"chat_template": plain if in_file else templates}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    if in_file:
        folder = tmp_path / "additional_chat_templates"
        folder.mkdir()
        (folder / "tool_use.jinja").write_text(HERMES)
    template = ChatTemplate.of(tmp_path)
    assert template is not None
    assert (template.tools, ChatSettings().syntax_of(template).name) == (None, "hermes")
    said, syntax = [PromptMessage(role="user", content="Hi")], ChatSettings().syntax_of(template)
    assert conversation_text(template, str, said, syntax=syntax) == "Hi"
    assert "<tools>" in conversation_text(template, str, said, [Tool("f")], syntax=syntax)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{{ messages[7].content.x }}", "refuses these messages"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% for x in range(10 ** 9) %}{% endfor %}", "Range too big"),
    ],
)
def test_what_a_template_refuses_is_told(source: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ChatTemplate(source, {}, name="m").render(TALK)


def test_a_template_that_is_no_jinja_is_told() -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        ChatTemplate("{% if %}", {}, name="m")
