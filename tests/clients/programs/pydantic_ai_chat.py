"""A program of a user of pydantic-ai's OpenAIChatModel and AnthropicModel."""

import asyncio
import sys
from typing import Literal

from features import feature
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    Embedder,
    ModelHTTPError,
    NativeOutput,
    PromptedOutput,
    ToolOutput,
    UsageLimitExceeded,
    UsageLimits,
)
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

url = sys.argv[1]
model = OpenAIChatModel("default", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
short = ModelSettings(max_tokens=60, temperature=0)


class Weather(BaseModel):
    sky: Literal["clear", "cloudy"]


def weather(city: Literal["Oslo", "Rome"]) -> str:
    """Return the weather of a city."""
    return "clear"


@feature("chat")
def _() -> bool:
    return bool(Agent(model, instructions="Be brief.", model_settings=short).run_sync("Say hello.").output)


@feature("stream")
def _() -> bool:
    async def streamed() -> str:
        async with Agent(model, model_settings=short).run_stream("Say hello.") as stream:
            return "".join([piece async for piece in stream.stream_text(delta=True)])

    return bool(asyncio.run(streamed()))


@feature("multi-turn")
def _() -> bool:
    agent = Agent(model, model_settings=short)
    first = agent.run_sync("Say hello.")
    return bool(agent.run_sync("Again.", message_history=first.all_messages()).output)


@feature("structured output", "NativeOutput")
def _() -> bool:
    agent = Agent(model, output_type=NativeOutput(Weather), model_settings=short)
    return isinstance(agent.run_sync("The sky is blue.").output, Weather)


@feature("structured output", "ToolOutput")
def _() -> bool:
    agent = Agent(model, output_type=ToolOutput(Weather), model_settings=short)
    return isinstance(agent.run_sync("The sky is blue.").output, Weather)


@feature("structured output", "PromptedOutput")
def _() -> bool:
    agent = Agent(model, output_type=PromptedOutput(Weather), model_settings=short)
    return isinstance(agent.run_sync("The sky is blue.").output, Weather)


@feature("tools", "an agent's run; whether the tool is called, the model decides")
def _() -> bool:
    agent = Agent(model, tools=[weather], model_settings=short | {"max_tokens": 300})
    return bool(agent.run_sync("Call the tool weather for Rome.").all_messages())


@feature("parallel tools", "an output tool, and no calls beside it")
def _() -> bool:
    settings = short | {"parallel_tool_calls": False}
    answer = Agent(model, output_type=ToolOutput(Weather), model_settings=settings).run_sync("The sky is blue.")
    return isinstance(answer.output, Weather)


@feature("tools + structured output", "an answer of the schema, or a call")
def _() -> bool:
    agent = Agent(model, output_type=NativeOutput(Weather), tools=[weather], model_settings=short | {"max_tokens": 200})
    try:
        return isinstance(agent.run_sync("The sky is blue.", usage_limits=UsageLimits(request_limit=1)).output, Weather)
    except UsageLimitExceeded:
        return True  # the model has called the tool


@feature("messages")
def _() -> bool:
    anthropic = AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(base_url=url, api_key="none"))
    return bool(Agent(anthropic, model_settings=short).run_sync("Say hello.").output)


@feature("usage")
def _() -> bool:
    usage = Agent(model, model_settings=short).run_sync("Say hello.").usage
    usage = usage() if callable(usage) else usage
    return usage.input_tokens > 0 < usage.output_tokens


@feature("errors")
def _() -> bool:
    try:
        Agent(model, model_settings=ModelSettings(temperature=-1)).run_sync("Say hello.")
    except ModelHTTPError as error:
        return error.status_code == 400 and "temperature" in str(error.body)
    return False


@feature("embeddings")
def _() -> bool:
    from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel

    embedding = OpenAIEmbeddingModel("default", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
    return len(Embedder(embedding).embed_query_sync("hello").embeddings[0]) > 10
