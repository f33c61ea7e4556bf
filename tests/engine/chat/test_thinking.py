"""Thoughts before the answer, over a model that writes a given text."""

import asyncio
from typing import Any

import pytest

from aici_base.errors import UsageError
from aici_engine.chat.messages import PromptMessage, conversation_text
from aici_engine.chat.settings import ChatSettings
from aici_engine.chat.template import ChatTemplate
from aici_engine.chat.thinking import (
    THINKING_NAMES,
    THINKING_TAGS,
    Thinking,
    named_tags,
    tags_of_template,
    thinking_of_prompt,
)
from aici_engine.chat.tool_syntax import HERMES
from aici_engine.chat.turn import (
    CallArguments,
    CallStart,
    ChatTurn,
    Text,
    Thought,
    TurnEnd,
    callable_tools,
    calls_constraint,
)
from aici_engine.chat.turn_runner import run_chat_turn
from aici_engine.sampling_params import SamplingParams
from tests.engine.chat.tool_cases import WEATHER
from tests.support.chat_templates import DEEPSEEK_R1, GRANITE_THINKING, MAGISTRAL, QWEN3, TEMPLATES
from tests.support.scripted_model import ScriptedModel, Wanted, encode

THINK, MAGIC, GRANITE = (named_tags(name) for name in ("think", "magistral", "granite"))
END = "<|im_end|>"
DIGITS = Wanted("regex", "[0-9]+")


class Answer:
    """The sum of the deltas of a turn. `asked`: for each generation, the text before it."""

    def __init__(self, model: ScriptedModel, thinking: Thinking | None, **fields: Any) -> None:
        self.thought, self.text, self.calls = "", "", ""
        sampling = fields.pop("sampling", SamplingParams())
        self._request = ChatTurn(prompt=encode(model.prompt), sampling=sampling, thinking=thinking, **fields)
        asyncio.run(self._collect(model))
        self.asked = [said for said, _, _ in model.asked]
        self.controllers = [controller for _, _, controller in model.asked]

    async def _collect(self, model: ScriptedModel) -> None:
        request = self._request
        if request.tools:
            known = callable_tools(request.tools, request.tool_choice)
            request = ChatTurn(
                prompt=request.prompt,
                sampling=request.sampling,
                thinking=request.thinking,
                tools=request.tools,
                tool_choice=request.tool_choice,
                syntax=HERMES,
                parallel=False,
                calls=await calls_constraint(model.json_schema, known, HERMES),
            )
        async for delta in run_chat_turn(model, request):
            match delta:
                case Thought(text):
                    assert not self.text
                    self.thought += text
                case Text(text):
                    self.text += text
                case CallStart(_, name):
                    self.calls += name
                case CallArguments(text):
                    self.calls += text
                case TurnEnd():
                    self.end = delta
        assert self.end.text == self.text


def opened(budget: int | None = None) -> Thinking:
    return Thinking(tags=THINK, is_open=True, budget=budget)


def left_open(budget: int | None = None) -> Thinking:
    return Thinking(tags=THINK, is_open=False, budget=budget)


def test_a_prompt_that_opens_the_tag() -> None:
    answer = Answer(ScriptedModel("P<think>\n", f"Hm.\nSo.\n</think>\n\nHello{END}"), opened())
    assert (answer.thought, answer.text, answer.end.reason) == ("Hm.\nSo.", "Hello", "end")
    assert answer.asked == ["", "Hm.\nSo.\n</think>\n\n"]
    # The tag and the end of the text are tokens of the output, here one a character.
    assert answer.end.usage.thought == len("Hm.\nSo.\n</think>")
    assert answer.end.usage.output == len("Hm.\nSo.\n</think>") + len("Hello") + 1


def test_a_prompt_that_leaves_it_to_the_model_which_thinks() -> None:
    answer = Answer(ScriptedModel("P", f"<think>\nHm.\n</think>\n\nHello{END}"), left_open())
    assert (answer.thought, answer.text) == ("Hm.", "Hello")
    assert answer.asked == ["", "<think>", "<think>\nHm.\n</think>\n\n"]


def test_a_prompt_that_leaves_it_to_the_model_which_answers() -> None:
    """The peeked tokens are forgotten, and the answer cannot begin with the tag any more."""
    model = ScriptedModel("P", f"Hello{END}")
    answer = Answer(model, left_open(), sampling=SamplingParams(stop=("x",), logprobs=1))
    assert (answer.thought, answer.text, answer.end.usage.output) == ("", "Hello", 6)
    assert answer.asked == ["", ""]
    [(_, peek, _), (_, sampling, _)] = model.asked
    assert (peek.max_tokens, peek.logprobs, sampling.logprobs) == (len("<think>"), None, 1)
    assert (sampling.stop, sampling.bad_tokens) == (("x",), (tuple(encode("<think>")),))


def test_special_tokens_as_tags() -> None:
    thinking = Thinking(tags=MAGIC, is_open=False)
    answer = Answer(ScriptedModel("P", "[THINK]Hm.[/THINK]Hello</s>"), thinking)
    assert (answer.thought, answer.text) == ("Hm.", "Hello")
    assert Answer(ScriptedModel("P", "Hello</s>"), thinking).text == "Hello"


def test_a_budget_forces_the_end_tag() -> None:
    """The model would think on; the turn closes the thought for it, in a line of its own."""
    answer = Answer(ScriptedModel("P", f"Hmmm\n</think>\n\nHello{END}"), opened(4))
    assert (answer.thought, answer.text, answer.end.usage.thought) == ("Hmmm", "Hello", 4)
    assert answer.end.reason == "end"


@pytest.mark.parametrize("thinking", [opened(0), left_open(0)], ids=["open", "possible"])
def test_a_budget_of_nothing_allows_no_thought(thinking: Thinking) -> None:
    text = f"</think>\n\nHello{END}" if thinking.is_open else f"Hello{END}"
    model = ScriptedModel("P", text)
    answer = Answer(model, thinking)
    assert (answer.thought, answer.text, answer.end.usage.thought) == ("", "Hello", 0)
    assert len(answer.asked) == 1
    assert model.asked[0][1].bad_tokens == (() if thinking.is_open else (tuple(encode("<think>")),))


def test_the_limit_of_the_answer_counts_the_thought() -> None:
    answer = Answer(ScriptedModel("P", "Hm, and so on"), opened(), sampling=SamplingParams(max_tokens=5))
    assert (answer.thought, answer.text, answer.end.reason) == ("Hm, a", "", "length")
    model = ScriptedModel("P", f"Hm.\n</think>\n\nHello{END}")
    answer = Answer(model, opened(3), sampling=SamplingParams(max_tokens=5))
    assert (answer.thought, answer.text, answer.end.reason) == ("Hm.", "He", "length")
    answer = Answer(model, opened(3), sampling=SamplingParams(max_tokens=3))
    assert (answer.thought, answer.text, answer.end.reason) == ("Hm.", "", "length")


def test_a_constraint_begins_after_the_thought() -> None:
    for thinking, begin in ((opened(), ""), (left_open(), "<think>\n")):
        answer = Answer(ScriptedModel("P", f"{begin}Hm.\n</think>\n\n42"), thinking, controller=DIGITS)
        assert (answer.thought, answer.text) == ("Hm.", "42")
        assert answer.controllers[-1] == DIGITS
        assert set(answer.controllers[:-1]) == {None}


def test_a_constraint_without_a_thought_is_the_whole_answer() -> None:
    model = ScriptedModel("P", "42")
    answer = Answer(model, left_open(), controller=DIGITS, sampling=SamplingParams(seed=1))
    assert (answer.text, answer.asked) == ("42", ["", ""])
    assert model.asked[-1][1].bad_tokens == ()  # a controller decides on all tokens


def test_a_model_that_ends_in_its_thought() -> None:
    """A free answer is empty. An answer that must follow a constraint follows it."""
    answer = Answer(ScriptedModel("P", f"Hm.{END}"), opened())
    assert (answer.thought, answer.text, answer.end.reason) == ("Hm.", "", "end")

    class Ends(ScriptedModel):
        def generate(self, prompt: list[int], sampling: SamplingParams, controller: Any) -> Any:
            if self.asked:
                self.answer = "Hm.\n</think>\n\n42"
            return super().generate(prompt, sampling, controller)

    answer = Answer(Ends("P", f"Hm.{END}"), opened(), controller=DIGITS)
    assert (answer.thought, answer.text) == ("Hm.", "42")


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_tools_after_a_thought(choice: Any) -> None:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bonn"}}'
    model = ScriptedModel("P", f"Look for <tool_call>.\n</think>\n\n{call}\n</tool_call>{END}")
    answer = Answer(model, opened(), tools=(WEATHER,), tool_choice=choice)
    assert (answer.thought, answer.text) == ("Look for <tool_call>.", "")
    assert (answer.calls, answer.end.reason) == ('get_weather{"city": "Bonn"}', "tool_calls")


def test_stop_strings_end_the_answer_and_not_the_thought() -> None:
    answer = Answer(
        ScriptedModel("P", f"No. Yes.\n</think>\n\nYes. No.{END}"), opened(), sampling=SamplingParams(stop=(". ",))
    )
    assert (answer.thought, answer.text, answer.end.stop) == ("No. Yes.", "Yes", ". ")


def test_an_answer_between_tags_of_its_own() -> None:
    """Granite 3.3. The tags are no part of the answer."""
    thinking = Thinking(tags=named_tags("response"), is_open=False)
    text = "<think>Hm.</think>\n<response>Hello</response>"
    answer = Answer(ScriptedModel("P", text + END), thinking)
    assert (answer.thought, answer.text, answer.end.reason, answer.end.stop) == ("Hm.", "Hello", "end", None)
    answer = Answer(ScriptedModel("P", text.replace("Hello", "42")), thinking, controller=DIGITS)
    assert (answer.thought, answer.text) == ("Hm.", "42")
    assert tags_of_template(text).name == "response"  # type: ignore[union-attr]


def test_no_thought_without_tags() -> None:
    answer = Answer(ScriptedModel("P", f"<think>Hm.</think>Hello{END}"), None)
    assert (answer.thought, answer.text) == ("", "<think>Hm.</think>Hello")


@pytest.mark.parametrize(
    ("source", "options", "tags", "state"),
    [
        (QWEN3, {}, THINK, "possible"),
        (QWEN3, {"enable_thinking": True}, THINK, "possible"),
        (QWEN3, {"enable_thinking": False}, THINK, "closed"),
        (DEEPSEEK_R1, {}, THINK, "open"),
        (MAGISTRAL, {}, MAGIC, "possible"),
        (GRANITE_THINKING, {"thinking": True}, GRANITE, "possible"),
        (TEMPLATES["hermes"], {}, None, ""),
    ],
)
def test_a_template_tells_its_tags_and_where_a_prompt_leaves_the_model(
    source: str, options: dict[str, Any], tags: Any, state: str
) -> None:
    template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}, name="test")
    assert ChatSettings().tags_of(template) == tags
    assert ChatSettings(reasoning_parser="none").tags_of(template) is None
    if tags is None:
        return
    said = PromptMessage(role="user", content="What is <think>?")
    thinking = thinking_of_prompt(tags, conversation_text(template, str, [said], options=options), 7)
    if state == "closed":
        assert thinking is None
    else:
        assert thinking == Thinking(tags=tags, is_open=state == "open", budget=7)


def test_names_of_parsers() -> None:
    assert {named_tags(name) for name in THINKING_NAMES} == set(THINKING_TAGS)
    assert named_tags("deepseek_r1") == THINK
    with pytest.raises(UsageError, match="the reasoning parser thinking is not known"):
        ChatSettings(reasoning_parser="thinking")
