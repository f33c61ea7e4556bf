"""Turns with tools over a model that writes the answer that a template shows."""

import asyncio
import json
import re
from typing import Any

from aici_engine.chat.messages import PromptMessage, conversation_text
from aici_engine.chat.template import ChatTemplate
from aici_engine.chat.tool_syntax import ToolSyntax
from aici_engine.chat.tools import CallArguments, CallStart
from aici_engine.chat.turn import (
    ChatTurn,
    Text,
    ToolChoice,
    TurnEnd,
    arguments_constraints,
    callable_tools,
    calls_constraint,
)
from aici_engine.chat.turn_runner import run_chat_turn
from aici_engine.sampling_params import SamplingParams
from tests.engine.chat.tool_cases import ToolCase
from tests.support.scripted_model import ScriptedModel, encode

USER = PromptMessage(role="user", content="Please do.")
_OWN_ID = re.compile(r', "id": "[^"]*"(?=\})')
"""Mistral's template shows an id that the model does not write."""
MADE = list[tuple[str, Any]]


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}, name="test")


def prompt_and_answer(chat: ChatTemplate, syntax: ToolSyntax, case: ToolCase) -> tuple[str, str]:
    """Return a prompt, and the answer that the template shows for the calls or the text of a case."""
    prompt = conversation_text(chat, str, [USER], case.tools, syntax=syntax)
    said = PromptMessage(role="assistant", content=case.text, calls=case.past_calls)
    whole = conversation_text(chat, str, [USER, said], case.tools, syntax=syntax, add_generation_prompt=False)
    if not whole.startswith(prompt.rstrip("\n")):  # templates show no thoughts of earlier answers
        prompt = prompt.rstrip().removesuffix("</think>").rstrip().removesuffix("<think>")
    if whole.startswith(f"{prompt}<think>\n\n</think>\n\n"):
        prompt += "<think>\n\n</think>\n\n"
    assert whole.startswith(prompt.rstrip("\n"))
    return prompt, _OWN_ID.sub("", whole[len(prompt) :])


def run(
    model: ScriptedModel, case: ToolCase, syntax: ToolSyntax, choice: ToolChoice = "auto", *, parallel: bool = True
) -> tuple[str, MADE, TurnEnd]:
    async def turn() -> tuple[str, MADE, TurnEnd]:
        known = callable_tools(case.tools, choice)
        arguments = await arguments_constraints(model.json_schema, known) if syntax.header else {}
        request = ChatTurn(
            prompt=encode(model.prompt),
            sampling=SamplingParams(),
            tools=case.tools,
            tool_choice=choice,
            parallel=parallel,
            syntax=syntax,
            calls=await calls_constraint(model.json_schema, known, syntax),
            arguments=arguments,
        )
        calls: list[tuple[str, str]] = []
        text = ""
        async for delta in run_chat_turn(model, request):
            match delta:
                case CallStart(_, name):
                    calls.append((name, ""))
                case CallArguments(more):
                    calls[-1] = (calls[-1][0], calls[-1][1] + more)
                case Text(more):
                    text += more
                case TurnEnd():
                    assert text.strip() == delta.text.strip()
                    return text, [(name, json.loads(arguments)) for name, arguments in calls], delta
        raise AssertionError("no end")

    return asyncio.run(turn())
