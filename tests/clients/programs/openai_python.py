"""A program of a user of OpenAI's client for Python."""

import json
import sys
from typing import Any, Literal

import openai
from features import feature
from openai import pydantic_function_tool
from pydantic import BaseModel

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
hello: Any = [{"role": "user", "content": "Say hello."}]
common: Any = {"model": "default", "temperature": 0, "max_tokens": 40}
long: Any = common | {"max_tokens": 200}


class Weather(BaseModel):
    sky: Literal["clear", "cloudy"]


class Forecast(BaseModel):
    """Return the weather of a city."""

    city: Literal["Oslo", "Rome"]


tools: Any = [pydantic_function_tool(Forecast)]
rome: Any = [{"role": "user", "content": "How is the weather in Rome and in Oslo?"}]


@feature("chat")
def _() -> bool:
    return bool(client.chat.completions.create(messages=hello, **common).choices[0].message.content)


@feature("chat", "completions")
def _() -> bool:
    answer = client.completions.create(prompt="Once upon a time", echo=True, logprobs=1, **common)
    return answer.choices[0].text.startswith("Once upon a time")


@feature("chat", "n = 2")
def _() -> bool:
    return len(client.chat.completions.create(messages=hello, n=2, **common).choices) == 2


@feature("stream")
def _() -> bool:
    whole = client.chat.completions.create(messages=hello, **common).choices[0].message.content
    chunks = client.chat.completions.create(messages=hello, stream=True, **common)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


@feature("stream", "helper")
def _() -> bool:
    with client.chat.completions.stream(messages=hello, **common) as stream:
        types = {event.type for event in stream}
        return "content.delta" in types and bool(stream.get_final_completion().choices[0].message.content)


@feature("multi-turn")
def _() -> bool:
    first = client.chat.completions.create(messages=hello, **common).choices[0].message
    messages = [*hello, first, {"role": "user", "content": "Again.", "name": "ada"}]
    return bool(client.chat.completions.create(messages=messages, **common).choices[0].message.content)


@feature("tools")
def _() -> bool:
    answer = client.chat.completions.create(messages=rome, tools=tools, tool_choice="required", **long)
    message = answer.choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "clear"} for call in message.tool_calls]
    after = client.chat.completions.create(messages=[*rome, message, *results], tools=tools, **common)
    return answer.choices[0].finish_reason == "tool_calls" and after.choices[0].finish_reason is not None


@feature("tools", "named, streamed")
def _() -> bool:
    named: Any = {"type": "function", "function": {"name": "Forecast"}}
    with client.chat.completions.stream(messages=rome, tools=tools, tool_choice=named, **common) as stream:
        [call, *_] = stream.get_final_completion().choices[0].message.tool_calls
    return isinstance(call.function.parsed_arguments, Forecast)


@feature("parallel tools")
def _() -> bool:
    asked = long | {"tools": tools, "tool_choice": "required", "extra_body": {"min_tokens": 30}}
    with client.chat.completions.stream(messages=rome, **asked) as stream:
        message = stream.get_final_completion().choices[0].message
    results: Any = [{"role": "tool", "tool_call_id": call.id, "content": "clear"} for call in message.tool_calls]
    after = client.chat.completions.create(messages=[*rome, message, *results], **common)
    alone = client.chat.completions.create(messages=rome, **{**asked, "extra_body": {}, "parallel_tool_calls": False})
    ids = {call.id for call in message.tool_calls}
    one = alone.choices[0].message.tool_calls
    return len(ids) == len(message.tool_calls) > 1 and bool(after.choices[0].message.content) and len(one) == 1


@feature("structured output")
def _() -> bool:
    question: Any = [{"role": "user", "content": "The sky is blue."}]
    answer = client.chat.completions.parse(messages=question, response_format=Weather, **common)
    return isinstance(answer.choices[0].message.parsed, Weather)


@feature("structured output", "json_object")
def _() -> bool:
    answer = client.chat.completions.create(
        messages=[{"role": "user", "content": "An empty JSON object."}],
        response_format={"type": "json_object"},
        **{**common, "max_tokens": 200},
    )
    whole = answer.choices[0].finish_reason == "stop"
    return not whole or isinstance(json.loads(answer.choices[0].message.content), dict)


@feature("tools + structured output")
def _() -> bool:
    answer = client.chat.completions.parse(messages=rome, response_format=Weather, tools=tools, **long)
    message = answer.choices[0].message
    return isinstance(message.parsed, Weather) or bool(message.tool_calls)


@feature("constraints")
def _() -> bool:
    fields = (
        {"guided_regex": "yes|no"},
        {"structured_outputs": {"choice": ["yes", "no"]}},
        {"regex": "yes|no"},
        {"grammar": 'root ::= "yes" | "no"'},
        {"ebnf": 'root ::= "yes" | "no"'},
        {"guided_grammar": 'start: "yes" | "no"', "guided_decoding_backend": "auto"},
    )
    answers = [client.chat.completions.create(messages=hello, extra_body=each, **common) for each in fields]
    return {answer.choices[0].message.content for answer in answers} <= {"yes", "no"}


@feature("responses")
def _() -> bool:
    first = client.responses.create(model="default", input="Say hello.", temperature=0, max_output_tokens=40)
    second = client.responses.create(model="default", input="Again.", previous_response_id=first.id)
    return bool(first.output_text) and client.responses.retrieve(second.id).output_text == second.output_text


@feature("responses", "stream")
def _() -> bool:
    with client.responses.stream(model="default", input="Say hello.", temperature=0) as stream:
        types = [event.type for event in stream]
        return types[-1] == "response.completed" and bool(stream.get_final_response())


@feature("responses", "parse")
def _() -> bool:
    answer = client.responses.parse(model="default", input="The sky is blue.", text_format=Weather)
    return isinstance(answer.output_parsed, Weather)


@feature("responses", "custom tool with a grammar")
def _() -> bool:
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "a" | "b"'}
    answer = client.responses.create(
        model="default",
        input="Call it.",
        tools=[{"type": "custom", "name": "letter", "format": grammar}],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    return answer.output[0].type == "custom_tool_call" and answer.output[0].input in ("a", "b")


@feature("logprobs")
def _() -> bool:
    answer = client.chat.completions.create(messages=hello, logprobs=True, top_logprobs=3, **common)
    content = answer.choices[0].logprobs.content
    return "".join(each.token for each in content) != "" and all(len(each.top_logprobs) == 3 for each in content)


@feature("usage")
def _() -> bool:
    usage = client.chat.completions.create(messages=hello, **common).usage
    options: Any = {"include_usage": True}
    *_, last = client.chat.completions.create(messages=hello, stream=True, stream_options=options, **common)
    return last.choices == [] and last.usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0


@feature("errors")
def _() -> bool:
    try:
        client.chat.completions.create(messages=hello, model="gpt-nosuch")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found", error.code
    try:
        client.chat.completions.create(messages=hello, **{**common, "temperature": -1})
    except openai.BadRequestError as error:
        return error.param == "temperature" and "temperature" in error.message
    return False


@feature("embeddings")
def _() -> bool:
    answer = client.embeddings.create(model="default", input=["hello", "world"])
    return len(answer.data) == 2 and len(answer.data[0].embedding) > 10 and answer.usage.prompt_tokens > 0
