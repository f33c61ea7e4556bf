"""A program of a user of pydantic-ai's OpenAIResponsesModel."""

import asyncio
import sys
from typing import Literal

from features import report
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIResponsesModel("default", provider=OpenAIProvider(base_url=f"{sys.argv[1]}/v1", api_key="none"))
short = OpenAIResponsesModelSettings(max_tokens=60, temperature=0)


class Weather(BaseModel):
    sky: Literal["clear", "cloudy"]


async def main() -> dict[str, object]:
    found: dict[str, object] = {}
    agent = Agent(model, instructions="Answer in one word.", model_settings=short)
    first = await agent.run("Say hello.")
    found["text"] = bool(first.output)
    found["history"] = bool((await agent.run("Again.", message_history=first.all_messages())).output)
    async with agent.run_stream("Say hello.") as stream:
        found["stream"] = bool(await stream.get_output())
    kept = OpenAIResponsesModelSettings(**short, openai_previous_response_id="auto")
    again = await agent.run("Again.", message_history=first.all_messages(), model_settings=kept)
    found["previous_response_id"] = bool(again.output)
    for name, output in {"native output": NativeOutput(Weather), "tool output": ToolOutput(Weather)}.items():
        answer = await Agent(model, output_type=output, model_settings=short).run("The sky is blue.")
        found[name] = answer.output.model_dump()
    return found


report("responses", asyncio.run(main()))
