"""A program of a user of DSPy."""

import sys
from typing import Any, Literal

import dspy
from features import feature

url = f"{sys.argv[1]}/v1"


def lm(name: str = "hosted_vllm/default", **fields: Any) -> dspy.LM:
    common: Any = {"api_base": url, "api_key": "none", "max_tokens": 200, "temperature": 0, "cache": False}
    return dspy.LM(name, **(common | {"num_retries": 0} | fields))


class Sky(dspy.Signature):
    """Say how the sky is."""

    text: str = dspy.InputField()
    sky: Literal["clear", "cloudy"] = dspy.OutputField()


@feature("chat")
def _() -> bool:
    return bool(lm()("Say hello."))


@feature("chat", "text completion")
def _() -> bool:
    return bool(lm("text-completion-openai/default", model_type="text")("Once upon a time"))


@feature("multi-turn")
def _() -> bool:
    first = lm()("Say hello.")[0]
    messages = [("user", "Say hello."), ("assistant", first), ("user", "Again.")]
    return bool(lm()(messages=[{"role": role, "content": content} for role, content in messages]))


@feature("structured output", "JSONAdapter")
def _() -> bool:
    with dspy.context(lm=lm("openai/gpt-4o"), adapter=dspy.JSONAdapter()):
        return dspy.Predict(Sky)(text="The sky is blue.").sky in ("clear", "cloudy")


@feature("structured output", "JSONAdapter, a model that DSPy does not know")
def _() -> bool:
    with dspy.context(lm=lm("openai/default"), adapter=dspy.JSONAdapter()):
        return dspy.Predict(Sky)(text="The sky is blue.").sky in ("clear", "cloudy")


@feature("responses")
def _() -> bool:
    return bool(lm("openai/default", model_type="responses")("Say hello."))


@feature("logprobs")
def _() -> bool:
    return bool(lm(logprobs=True)("Say hello.")[0]["logprobs"])


@feature("usage")
def _() -> bool:
    asked = lm()
    asked("Say hello.")
    return asked.history[-1]["usage"]["total_tokens"] > 0


@feature("errors")
def _() -> bool:
    try:
        lm(temperature=-1)("Say hello.")
    except Exception as error:
        return "temperature" in str(error)
    return False


@feature("embeddings")
def _() -> bool:
    embedder = dspy.Embedder("openai/default", api_base=url, api_key="none", caching=False)
    return len(embedder(["hello", "world"])) == 2
