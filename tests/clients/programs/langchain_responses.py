"""A program of a user of LangChain's `use_responses_api`."""

import sys
from typing import Any, Literal

from features import report
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

LOGPROBS = "message.output_text.logprobs"


class Weather(BaseModel):
    sky: Literal["clear", "cloudy"]


@tool
def weather(city: Literal["Oslo", "Rome"]) -> str:
    """Return the weather of a city."""
    return "clear"


def chat(**fields: Any) -> ChatOpenAI:
    more = {"max_tokens": 60, "temperature": 0, **fields}
    return ChatOpenAI(
        model="default", base_url=f"{sys.argv[1]}/v1", api_key="none", use_responses_api=True, max_retries=0, **more
    )


found: dict[str, Any] = {"text": bool(chat().invoke("Say hello.").text)}
found["stream"] = bool("".join(chunk.text for chunk in chat().stream("Say hello.")))
found["structured output"] = chat().with_structured_output(Weather).invoke("The sky is blue.").model_dump()
asking = chat().bind_tools([weather], tool_choice="any", parallel_tool_calls=False)
question = HumanMessage("How is the weather in Rome?")
call = asking.invoke([question])
[asked] = call.tool_calls[:1]
results = [ToolMessage(weather.invoke(each["args"]), tool_call_id=each["id"]) for each in call.tool_calls]
found["tools"] = bool(chat().invoke([question, call, *results]).text) and asked["name"]
kept = chat(use_previous_response_id=True)
first = kept.invoke("My name is Ada.")
found["previous_response_id"] = bool(kept.invoke([HumanMessage("My name is Ada."), first, question]).text)
found["logprobs"] = bool(chat(include=[LOGPROBS], top_logprobs=2).invoke("Say hello.").content)
report("responses", found)
