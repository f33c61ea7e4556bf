"""A program of a user of openai-agents, with its default model and settings."""

import asyncio
import sys
from typing import Literal

from agents import (
    Agent,
    ModelSettings,
    Runner,
    SQLiteSession,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)
from features import report
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(disabled=True)
set_default_openai_client(AsyncOpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0))
asked: list[str] = []


class Weather(BaseModel):
    sky: Literal["clear", "cloudy"]


@function_tool
def weather(city: Literal["Oslo", "Rome"]) -> str:
    """Return the weather of a city."""
    asked.append(city)
    return "clear"


async def main() -> dict[str, object]:
    found: dict[str, object] = {}
    greedy = ModelSettings(temperature=0)  # a small model that samples may not end its answer
    plain = Agent(name="plain", instructions="Answer in one word.", model_settings=greedy)
    found["text"] = (await Runner.run(plain, "Say hello.")).final_output
    typed = Agent(name="typed", output_type=Weather)
    found["output_type, default settings"] = (await Runner.run(typed, "The sky is blue.")).final_output.model_dump()
    settings = ModelSettings(temperature=0, tool_choice="required", parallel_tool_calls=False)
    forced = Agent(name="forced", tools=[weather], model_settings=settings, tool_use_behavior="stop_on_first_tool")
    found["tools"] = bool((await Runner.run(forced, "How is the weather in Rome?")).final_output is not None and asked)
    kept = Agent(name="kept", model_settings=greedy)
    first = await Runner.run(kept, "My name is Ada.")
    second = await Runner.run(kept, "What is my name?", previous_response_id=first.last_response_id)
    found["previous_response_id"] = bool(second.final_output)
    session = SQLiteSession("s")
    await Runner.run(kept, "My name is Ada.", session=session)
    found["session"] = bool((await Runner.run(kept, "What is my name?", session=session)).final_output)
    streamed = Runner.run_streamed(forced, "How is the weather in Rome?")
    found["stream"] = len([event async for event in streamed.stream_events()]) > 3
    once = ModelSettings(temperature=0, parallel_tool_calls=False)
    both = Agent(name="both", tools=[weather], output_type=Weather, model_settings=once)
    found["tools and output_type"] = (await Runner.run(both, "The sky is blue.")).final_output.model_dump()
    return found


report("responses", asyncio.run(main()))
