"""A program of a user of outlines, with the models for OpenAI's, vLLM's and SGLang's servers."""

import sys
from typing import Any, Literal

import openai
import outlines
from features import feature
from outlines.types import JsonSchema, Regex
from outlines.types.dsl import CFG
from pydantic import BaseModel

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
short: Any = {"max_tokens": 60, "temperature": 0}


class Weather(BaseModel):
    sky: Literal["clear", "cloudy"]


of_openai = outlines.from_openai(client, "default")
of_vllm = outlines.from_vllm(client, "default")
of_sglang = outlines.from_sglang(client, "default")
MODELS = {"from_openai": of_openai, "from_vllm": of_vllm, "from_sglang": of_sglang}
SCHEMA = JsonSchema('{"type": "object", "properties": {"sky": {"enum": ["clear"]}}, "required": ["sky"]}')

for name, model in MODELS.items():

    @feature("chat", name)
    def _(model: Any = model) -> bool:
        return bool(model("Say hello.", **short))

    @feature("stream", name)
    def _(model: Any = model) -> bool:
        return "".join(model.stream("Say hello.", **short)) == model("Say hello.", **short)

    @feature("structured output", f"{name}, a Pydantic model")
    def _(model: Any = model) -> bool:
        return isinstance(Weather.model_validate_json(model("The sky is blue.", Weather, **short)), Weather)

    @feature("structured output", f"{name}, Literal")
    def _(model: Any = model) -> bool:
        return model("Is tea hot?", Literal["yes", "no"], **short) in ("yes", "no")

    @feature("structured output", f"{name}, JsonSchema")
    def _(model: Any = model) -> bool:
        return "clear" in model("The sky is blue.", SCHEMA, **short)


for name, model in {"from_vllm": of_vllm, "from_sglang": of_sglang}.items():

    @feature("constraints", f"{name}, Regex and int")
    def _(model: Any = model) -> bool:
        year = model("The war ended in ", Regex(r"\d{4}"), **short)
        return len(year) == 4 and str(int(model("One plus one is ", int, **short))) != ""


@feature("constraints", "from_vllm, CFG")
def _() -> bool:
    return of_vllm("Is tea hot?", CFG('start: "yes" | "no"'), **short) in ("yes", "no")


@feature("constraints", "from_sglang, CFG")
def _() -> bool:
    return of_sglang("Is tea hot?", CFG('root ::= "yes" | "no"'), **short) in ("yes", "no")


@feature("errors")
def _() -> bool:
    try:
        of_vllm("Say hello.", temperature=-1)
    except Exception as error:
        return "temperature" in str(error)
    return False
