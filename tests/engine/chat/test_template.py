"""Chat templates against transformers' own rendering."""

import pytest

from aici_base.errors import UsageError
from aici_engine.chat.template import ChatTemplate, chat_prompt
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
