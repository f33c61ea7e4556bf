"""What a model's own template shows as a call is what a turn generates under constraint, and reads back.

The oracle is the template: it renders an answer with calls, and a scripted model writes just that.
"""

import re
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from aici_base.errors import UsageError
from aici_engine.chat.messages import PromptMessage, conversation_text
from aici_engine.chat.settings import ChatSettings
from aici_engine.chat.tool_syntax import REFUSED, SYNTAXES
from aici_engine.chat.tools import PastCall
from aici_engine.chat.turn import (
    Named,
    ToolChoice,
)
from aici_engine.sampling_params import SamplingParams
from tests.engine.chat.tool_cases import ALL, CASES, WEATHER, ToolCase
from tests.engine.chat.tool_turns import MADE, USER, prompt_and_answer, run, template
from tests.support.chat_templates import ENDS, GRANITE_HIDING, HERMES, LLAMA3, MISTRAL, QWEN3_CODER, TEMPLATES
from tests.support.scripted_model import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import Sequence


def possible(syntax: str) -> list[str]:
    """Return the cases that a syntax can express: Llama 3 makes one call an answer."""
    return [name for name, case in CASES.items() if syntax != "llama3" or len(case.calls) < 2]


TABLE = [(syntax, case) for syntax in TEMPLATES for case in possible(syntax)]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_tells_its_syntax(name: str) -> None:
    known = template(TEMPLATES[name]).tools
    assert known is not None
    assert known.syntax.name == name
    assert known.has_text_arguments == (name in ("functools", "deepseek_v31"))
    assert ChatSettings().syntax_of(template(TEMPLATES[name])) == known.syntax


@pytest.mark.parametrize(("name", "case"), TABLE)
def test_what_the_template_shows_is_generated_and_read(name: str, case: str) -> None:
    chat, wanted = template(TEMPLATES[name]), CASES[case]
    syntax = ChatSettings().syntax_of(chat)
    model = ScriptedModel(*prompt_and_answer(chat, syntax, wanted))
    text, calls, end = run(model, wanted, syntax)
    assert calls == list(wanted.calls)
    assert text.rstrip("\n") == wanted.text
    assert end.reason == ("tool_calls" if wanted.calls else "end")


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, case in TABLE if CASES[case].calls])
def test_required_and_named_begin_with_a_call(name: str, case: str) -> None:
    chat, wanted = template(TEMPLATES[name]), CASES[case]
    syntax = ChatSettings().syntax_of(chat)
    prompt, answer = prompt_and_answer(chat, syntax, wanted)
    first = wanted.calls[0]
    choices: Sequence[tuple[ToolChoice, bool, MADE]] = (
        ("required", True, list(wanted.calls)),
        ("required", False, [first]),
        (Named(first[0]), True, [first]),
    )
    for choice, parallel, calls in choices:
        model = ScriptedModel(prompt, answer)
        assert run(model, wanted, syntax, choice, parallel=parallel)[1] == calls
        assert all(sampling.stop == () for _, sampling, _ in model.asked)


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, case in TABLE if CASES[case].calls])
def test_wrong_arguments_are_refused(name: str, case: str) -> None:
    """The constraint of the call is the tool's own schema."""
    chat, wanted = template(TEMPLATES[name]), CASES[case]
    syntax = ChatSettings().syntax_of(chat)
    assert wanted.wrong is not None
    called = wanted.calls[0][0]
    wrong = ToolCase(wanted.tools, ((called, wanted.wrong), *wanted.calls[1:]))
    model = ScriptedModel(*prompt_and_answer(chat, syntax, wrong))
    with pytest.raises(jsonschema.ValidationError):
        run(model, wrong, syntax)


@pytest.mark.parametrize("name", ["hermes", "phi4", "functools", "granite"])
def test_text_before_the_calls(name: str) -> None:
    chat = template(TEMPLATES[name])
    syntax = ChatSettings().syntax_of(chat)
    wanted = ToolCase((WEATHER,), CASES["simple"].calls, text="Let me see.")
    text, calls, _ = run(ScriptedModel(*prompt_and_answer(chat, syntax, wanted)), wanted, syntax)
    assert (text.strip(), calls) == ("Let me see.", list(wanted.calls))


class _BeginsTwice(ScriptedModel):
    """After its first generation, the model writes what comes after `prefix`."""

    prefix = ""

    def generate(self, prompt: list[int], sampling: SamplingParams, controller: Any) -> Any:
        if self.asked:
            self.answer = self.answer.removeprefix(self.prefix)
        return super().generate(prompt, sampling, controller)


@pytest.mark.parametrize("begin", ["", "\n\n", "<|python_tag|>"])
def test_llama_may_begin_a_call_in_other_ways(begin: str) -> None:
    """What stands before the mark is not part of the answer: the call is generated in the plain form."""
    model = _BeginsTwice("P", f'{begin}{{"name": "get_weather", "parameters": {{"city": "Bonn"}}}}<|eot_id|>')
    model.prefix = begin
    case = CASES["simple"]
    assert run(model, case, ChatSettings().syntax_of(template(LLAMA3)))[1] == list(case.calls)
    assert len(model.asked) == 2


def test_a_name_in_the_middle_of_a_text_is_no_call_of_llama() -> None:
    text = 'For example {"name": "get_weather", "parameters": {}} is a call.'
    case = ToolCase(ALL, text=text)
    model = ScriptedModel("P", f"{text}<|eot_id|>")
    assert run(model, case, ChatSettings().syntax_of(template(LLAMA3)))[:2] == (text, [])


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}{{ tools | length }} <tool_call>{% endif %}",
        QWEN3_CODER,
    ],
    ids=["no tools", "tools without names", "calls in XML"],
)
def test_any_other_template_gets_the_generic_syntax(source: str) -> None:
    chat = template(source)
    assert chat.tools is None
    syntax = ChatSettings().syntax_of(chat)
    assert syntax.name == "generic"
    assert "write its name and its arguments as JSON between two marks" in conversation_text(
        chat, str, [USER], [WEATHER], syntax=syntax
    )


@pytest.mark.parametrize("name", SYNTAXES)
@pytest.mark.parametrize("case", ["simple", "parallel multiple"])
def test_a_syntax_can_be_forced_on_a_template(name: str, case: str) -> None:
    """The system message explains the syntax, and earlier calls are shown in it."""
    chat = template("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}</s>")
    syntax = ChatSettings(tool_syntax=name).syntax_of(chat)
    assert syntax == SYNTAXES[name]
    wanted = CASES[case]
    if syntax.between is None and len(wanted.calls) > 1:
        return
    prompt = conversation_text(chat, str, [USER], wanted.tools, syntax=syntax)
    begin = '{"name":"..."' if syntax.header is None else f"{syntax.header.before_name}..."
    assert prompt.count(syntax.opening + begin) == 1
    model = ScriptedModel(prompt, syntax.written(wanted.past_calls) + ENDS[0])
    assert run(model, wanted, syntax)[1] == list(wanted.calls)


def test_a_forced_syntax_that_the_template_has_is_the_templates_own() -> None:
    assert ChatSettings(tool_syntax="mistral").syntax_of(template(MISTRAL)).opening == "[TOOL_CALLS] ["
    assert ChatSettings(tool_syntax="mistral").syntax_of(template(HERMES)).opening == "[TOOL_CALLS]["
    with pytest.raises(UsageError, match=r"the tool syntax hermess is not known\nhint: use auto, hermes"):
        ChatSettings(tool_syntax="hermess")


@pytest.mark.parametrize("name", REFUSED)
def test_syntaxes_that_no_declaration_can_say_are_refused_by_name(name: str) -> None:
    with pytest.raises(
        UsageError, match=f"the tool syntax {name} is not supported: it has .*\nhint: use auto or generic"
    ):
        ChatSettings(tool_syntax=name)


def test_llama_4_by_its_json_template_is_llama_3() -> None:
    """Calls as Python are of another template."""
    source = LLAMA3.replace("start_header_id", "header_start").replace("end_header_id", "header_end")
    known = template(source.replace("eot_id", "eot")).tools
    assert known is not None
    assert known.syntax.name == "llama3"


def test_ids_of_other_servers_fit_a_template_with_short_ids() -> None:
    chat = template(MISTRAL)
    call = PastCall("call_0123456789abcdef01234567", "now", {})
    talk = [
        USER,
        PromptMessage(role="assistant", calls=[call]),
        PromptMessage(role="tool", content="1", call_id=call.call_id),
    ]
    text = conversation_text(chat, str, talk, ALL, syntax=ChatSettings().syntax_of(chat))
    [made, answered] = re.findall(r'"(?:id|call_id)": "(\w{9})"', text)
    assert made == answered


def test_calls_that_a_template_hides_are_part_of_the_text() -> None:
    chat, case = template(GRANITE_HIDING), CASES["parallel"]
    syntax = ChatSettings().syntax_of(chat)
    assert syntax.name == "granite"
    prompt, answer = prompt_and_answer(chat, syntax, case)
    assert answer.startswith('<|tool_call|>[{"name":"get_weather","arguments":{"city":"Bonn"}}, {')
    assert run(ScriptedModel(prompt, answer), case, syntax)[1] == list(case.calls)


def test_two_calls_of_one_message_are_refused_by_llamas_template() -> None:
    chat, case = template(LLAMA3), CASES["parallel"]
    with pytest.raises(UsageError, match="one call at a time"):
        prompt_and_answer(chat, ChatSettings().syntax_of(chat), case)
