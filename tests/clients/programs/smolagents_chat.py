"""A program of a user of smolagents' OpenAIModel."""

import sys
from typing import Any

from features import feature
from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool


def served(temperature: float) -> OpenAIModel:
    url = f"{sys.argv[1]}/v1"
    return OpenAIModel("default", api_base=url, api_key="none", max_tokens=200, temperature=temperature)


model = served(0)
hello: Any = [{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}]
SCHEMA = {"type": "object", "properties": {"sky": {"enum": ["clear", "cloudy"]}}, "required": ["sky"]}


@tool
def weather(city: str) -> str:
    """Return the weather of a city.

    Args:
        city: The city.
    """
    return "clear"


@feature("chat")
def _() -> bool:
    return bool(model.generate(hello).content)


@feature("stream")
def _() -> bool:
    return "".join(delta.content or "" for delta in model.generate_stream(hello)) == model.generate(hello).content


@feature("multi-turn")
def _() -> bool:
    said = model.generate(hello).content
    more: Any = [*hello, {"role": "assistant", "content": said}, {"role": "user", "content": "Again."}]
    return bool(model.generate(more).content)


@feature("tools")
def _() -> bool:
    answer = model.generate(hello, tools_to_call_from=[weather])
    return answer.tool_calls[0].function.name == "weather"


@feature("tools", "ToolCallingAgent")
def _() -> bool:
    agent = ToolCallingAgent(tools=[weather], model=model, verbosity_level=0)
    agent.run("How is the weather in Rome?", max_steps=2)
    return bool(agent.memory.steps)


@feature("structured output", "response_format")
def _() -> bool:
    form = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA, "strict": True}}
    return '"sky"' in model.generate(hello, response_format=form).content


@feature("structured output", "CodeAgent with structured outputs")
def _() -> bool:
    agent = CodeAgent(tools=[], model=model, use_structured_outputs_internally=True, verbosity_level=0)
    agent.run("What is one plus one?", max_steps=1)
    return bool(agent.memory.steps)


@feature("usage")
def _() -> bool:
    return model.generate(hello).token_usage.output_tokens > 0


@feature("errors")
def _() -> bool:
    try:
        served(-1).generate(hello)
    except Exception as error:
        return "temperature" in str(error)
    return False
