"""A program of a user of LiteLLM's `responses`."""

import sys

import litellm
from features import report

common = {"model": "openai/default", "api_base": f"{sys.argv[1]}/v1", "api_key": "none", "max_output_tokens": 30}
found = {}
first = litellm.responses(input="Say hello.", **common)
found["text"] = bool(first.output[0].content[0].text)
events = [event.type for event in litellm.responses(input="Say hello.", stream=True, **common)]
found["stream"] = str(events[-1])
second = litellm.responses(input="Again.", previous_response_id=first.id, **common)
found["previous_response_id"] = bool(second.output)
weather = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]},
}
call = litellm.responses(input="How is the weather in Rome?", tools=[weather], tool_choice="required", **common)
found["tools"] = call.output[0].type
bridged = litellm.completion(
    model="openai/responses/default",
    api_base=f"{sys.argv[1]}/v1",
    api_key="none",
    max_tokens=30,
    messages=[{"role": "user", "content": "Say hello."}],
)
found["completion over responses"] = bool(bridged.choices[0].message.content)
report("responses", found)
