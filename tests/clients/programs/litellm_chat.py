"""A program of a user of LiteLLM, over several of its providers."""

import json
import sys
from typing import Any, Literal

import litellm
from features import feature
from pydantic import BaseModel

url = sys.argv[1]
hello: Any = [{"role": "user", "content": "Say hello."}]
rome: Any = [{"role": "user", "content": "How is the weather in Rome and in Oslo?"}]
parameters = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}
tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]


class Weather(BaseModel):
    sky: Literal["clear", "cloudy"]


def ask(messages: Any = hello, provider: str = "openai", **fields: Any) -> Any:
    common: Any = {"api_key": "none", "max_tokens": 60, "temperature": 0, "num_retries": 0, "api_base": f"{url}/v1"}
    return litellm.completion(model=f"{provider}/default", messages=messages, **(common | fields))


for provider in ("openai", "hosted_vllm", "custom_openai", "lm_studio", "llamafile", "litellm_proxy"):

    @feature("chat", f"{provider}/")
    def _(provider: str = provider) -> bool:
        return bool(ask(provider=provider).choices[0].message.content)


@feature("chat", "text_completion")
def _() -> bool:
    answer = litellm.text_completion(
        model="text-completion-openai/default", prompt="Once", api_base=f"{url}/v1", api_key="none", max_tokens=8
    )
    return bool(answer.choices[0].text)


@feature("messages", "anthropic/")
def _() -> bool:
    answer = litellm.completion(
        model="anthropic/claude-sonnet-4-5", messages=hello, api_base=url, api_key="none", max_tokens=40
    )
    return bool(answer.choices[0].message.content)


@feature("stream")
def _() -> bool:
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True))
    return streamed == ask().choices[0].message.content


@feature("multi-turn", "with name and reasoning_content")
def _() -> bool:
    first = ask().choices[0].message.model_dump() | {"reasoning_content": "Be polite.", "name": "helper"}
    return bool(ask([*hello, first, {"role": "user", "content": "Again."}]).choices[0].message.content)


@feature("tools")
def _() -> bool:
    message = ask(rome, tools=tools, tool_choice="required", max_tokens=200).choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "clear"} for call in message.tool_calls]
    return bool(ask([*rome, message, *results], tools=tools, tool_choice="none").choices[0].message.content)


@feature("parallel tools")
def _() -> bool:
    asked: Any = {"tools": tools, "tool_choice": "required", "max_tokens": 200}
    both = ask(rome, extra_body={"min_tokens": 30}, **asked).choices[0].message.tool_calls
    one = ask(rome, parallel_tool_calls=False, **asked).choices[0].message.tool_calls
    return len(both) > 1 and len(one) == 1


@feature("structured output")
def _() -> bool:
    answer = ask([{"role": "user", "content": "The sky is blue."}], response_format=Weather)
    return "sky" in json.loads(answer.choices[0].message.content)


@feature("tools + structured output")
def _() -> bool:
    message = ask(rome, response_format=Weather, tools=tools, max_tokens=300).choices[0].message
    return bool(message.tool_calls) or "sky" in json.loads(message.content)


@feature("constraints", "guided_choice by hosted_vllm/")
def _() -> bool:
    return ask(provider="hosted_vllm", guided_choice=["yes", "no"]).choices[0].message.content in ("yes", "no")


@feature("logprobs")
def _() -> bool:
    return len(ask(logprobs=True, top_logprobs=2).choices[0].logprobs.content) > 0


@feature("usage")
def _() -> bool:
    *_, last = ask(stream=True, stream_options={"include_usage": True})
    return last.usage.total_tokens == ask().usage.total_tokens > 0


@feature("errors")
def _() -> bool:
    try:
        ask(temperature=-1)
    except litellm.BadRequestError as error:
        return "temperature" in str(error)
    return False


@feature("embeddings")
def _() -> bool:
    asked: Any = {"model": "openai/default", "input": ["hello", "world"], "api_base": f"{url}/v1", "api_key": "none"}
    return len(litellm.embedding(**asked).data) == 2
