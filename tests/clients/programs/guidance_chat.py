"""A program of a user of guidance, with its OpenAI and vLLM models."""

import sys
from typing import Any, Literal

import guidance
from features import feature
from guidance import assistant, gen, json, models, select, user
from pydantic import BaseModel

url = f"{sys.argv[1]}/v1"


class Weather(BaseModel):
    sky: Literal["clear", "cloudy"]


def of_vllm() -> Any:
    from guidance.models.experimental import VLLMModel

    return VLLMModel("default", base_url=url, api_key="none", echo=False)


def of_openai() -> Any:
    return models.OpenAI("default", base_url=url, api_key="none", echo=False)


for name, model in {"OpenAI": of_openai, "VLLMModel": of_vllm}.items():

    @feature("chat", name)
    def _(model: Any = model, name: str = name) -> bool:
        lm = model()
        with user():
            lm += "Say hello."
        with assistant():
            lm += gen("answer", regex=r"[a-zA-Z ]{1,20}\.") if name == "VLLMModel" else gen("answer", max_tokens=20)
        return bool(lm["answer"])

    @feature("structured output", f"{name}, json")
    def _(model: Any = model) -> bool:
        lm = model()
        with user():
            lm += "The sky is blue."
        with assistant():
            lm += json("weather", schema=Weather, temperature=0)
        return isinstance(Weather.model_validate_json(lm["weather"]), Weather)

    @feature("constraints", f"{name}, select")
    def _(model: Any = model) -> bool:
        lm = model()
        with user():
            lm += "Is tea hot?"
        with assistant():
            lm += select(["yes", "no"], name="answer")
        return lm["answer"] in ("yes", "no")

    @feature("constraints", f"{name}, regex")
    def _(model: Any = model) -> bool:
        lm = model()
        with user():
            lm += "When did the war end?"
        with assistant():
            lm += gen("year", regex=r"19\d\d")
        return len(lm["year"]) == 4


@feature("constraints", "VLLMModel, a grammar of several parts")
def _() -> bool:
    @guidance(stateless=True)
    def date(lm: Any) -> Any:
        return lm + select(["May", "June"]) + " " + gen(regex=r"[1-9]")

    lm = of_vllm()
    with user():
        lm += "When?"
    with assistant():
        lm += date()
    return True


@feature("chat", "VLLMModel, gen with max_tokens")
def _() -> bool:
    lm = of_vllm()
    with user():
        lm += "Say hello."
    with assistant():
        lm += gen("answer", max_tokens=20)
    return bool(lm["answer"])


@feature("multi-turn", "OpenAI")
def _() -> bool:
    lm = of_openai()
    for text in ("Say hello.", "Again."):
        with user():
            lm += text
        with assistant():
            lm += gen("answer", max_tokens=20)
    return bool(lm["answer"])
