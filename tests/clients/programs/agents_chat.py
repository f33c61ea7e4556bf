"""A program of a user of openai-agents, with chat completions."""

import asyncio
import sys
from typing import Any, Literal

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from features import feature
from openai import AsyncOpenAI, BadRequestError
from openai.types.shared import Reasoning
from pydantic import BaseModel

set_tracing_disabled(disabled=True)


class Weather(BaseModel):
    sky: Literal["clear", "cloudy"]


@function_tool
def weather(city: Literal["Oslo", "Rome"]) -> str:
    """Return the weather of a city."""
    return "clear"


def agent(settings: ModelSettings | None = None, **fields: Any) -> Agent:
    client = AsyncOpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
    short = ModelSettings(temperature=0, max_tokens=200).resolve(settings)
    return Agent(name="helper", model=OpenAIChatCompletionsModel("default", client), model_settings=short, **fields)


def ask(of: Agent, text: Any = "Say hello.") -> Any:
    return asyncio.run(Runner.run(of, text, max_turns=4, run_config=RunConfig(tracing_disabled=True)))


@feature("chat")
def _() -> bool:
    return bool(ask(agent(instructions="Be brief.")).final_output)


@feature("chat", "Reasoning(effort=), verbosity, store")
def _() -> bool:
    hints = ModelSettings(reasoning=Reasoning(effort="low"), verbosity="low", store=True, metadata={"a": "b"})
    return bool(ask(agent(hints)).final_output)


@feature("stream")
def _() -> bool:
    async def streamed() -> int:
        result = Runner.run_streamed(agent(), "Say hello.")
        return len([event async for event in result.stream_events() if event.type == "raw_response_event"])

    return asyncio.run(streamed()) > 2


@feature("multi-turn")
def _() -> bool:
    first = ask(agent())
    return bool(ask(agent(), [*first.to_input_list(), {"role": "user", "content": "Again."}]).final_output)


@feature("tools")
def _() -> bool:
    settings = ModelSettings(tool_choice="required", parallel_tool_calls=False)
    asked = agent(settings, tools=[weather], tool_use_behavior="stop_on_first_tool")
    return ask(asked, "How is the weather in Rome?").final_output == "clear"


@feature("tools", "handoff")
def _() -> bool:
    asked = agent(ModelSettings(tool_choice="required"), handoffs=[handoff(agent())])
    return bool(ask(asked).final_output)


@feature("parallel tools")
def _() -> bool:
    settings = ModelSettings(tool_choice="required", parallel_tool_calls=True, extra_body={"min_tokens": 30})
    asked = agent(settings, tools=[weather], tool_use_behavior="stop_on_first_tool")
    result = ask(asked, "How is the weather in Rome and in Oslo?")
    return len([item for item in result.new_items if item.type == "tool_call_item"]) > 1


@feature("structured output")
def _() -> bool:
    return isinstance(ask(agent(output_type=Weather), "The sky is blue.").final_output, Weather)


@feature("tools + structured output")
def _() -> bool:
    return isinstance(ask(agent(output_type=Weather, tools=[weather]), "The sky is blue.").final_output, Weather)


@feature("logprobs")
def _() -> bool:
    return bool(ask(agent(ModelSettings(top_logprobs=2, extra_body={"logprobs": True}))).final_output)


@feature("usage")
def _() -> bool:
    return ask(agent()).context_wrapper.usage.total_tokens > 0


@feature("errors")
def _() -> bool:
    try:
        ask(agent(ModelSettings(temperature=-1)))
    except BadRequestError as error:
        return error.param == "temperature"
    return False
