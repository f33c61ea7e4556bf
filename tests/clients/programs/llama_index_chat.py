"""A program of a user of LlamaIndex's OpenAILike."""

import asyncio
import sys
from typing import Any, Literal

from features import feature
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

url = f"{sys.argv[1]}/v1"


def model(**fields: Any) -> OpenAILike:
    common: Any = {"is_chat_model": True, "is_function_calling_model": True, "max_tokens": 60, "temperature": 0}
    common |= {"context_window": 2048, "max_retries": 0, "should_use_structured_outputs": True}
    return OpenAILike(model="default", api_base=url, api_key="none", **(common | fields))


class Weather(BaseModel):
    """The weather."""

    sky: Literal["clear", "cloudy"]


def weather(city: Literal["Oslo", "Rome"]) -> str:
    """Return the weather of a city."""
    return "clear"


tool = FunctionTool.from_defaults(weather)
hello = [ChatMessage(role="user", content="Say hello.")]


@feature("chat")
def _() -> bool:
    return bool(model().chat(hello).message.content)


@feature("chat", "complete")
def _() -> bool:
    return bool(model(is_chat_model=False).complete("Once upon a time").text)


@feature("stream")
def _() -> bool:
    return "".join(chunk.delta or "" for chunk in model().stream_chat(hello)) == model().chat(hello).message.content


@feature("multi-turn")
def _() -> bool:
    first = model().chat(hello).message
    return bool(model().chat([*hello, first, ChatMessage(role="user", content="Again.")]).message.content)


@feature("tools", "predict_and_call")
def _() -> bool:
    answer = model(max_tokens=200).predict_and_call(
        [tool], "How is the weather in Rome?", tool_required=True, allow_parallel_tool_calls=False
    )
    return "clear" in str(answer)


@feature("tools", "FunctionAgent")
def _() -> bool:
    async def ask() -> str:
        return str(await FunctionAgent(tools=[tool], llm=model(max_tokens=200)).run("How is the weather in Rome?"))

    return asyncio.run(ask()) is not None


@feature("parallel tools")
def _() -> bool:
    asked: Any = {"user_msg": "How is the weather in Rome and in Oslo?", "tool_required": True}
    llm = model(max_tokens=200, additional_kwargs={"extra_body": {"min_tokens": 30}})
    both = llm.chat_with_tools([tool], allow_parallel_tool_calls=True, **asked)
    one = model(max_tokens=200).chat_with_tools([tool], allow_parallel_tool_calls=False, **asked)
    return len(llm.get_tool_calls_from_response(both)) > 1 and len(llm.get_tool_calls_from_response(one)) == 1


@feature("structured output")
def _() -> bool:
    prompt = PromptTemplate("The sky is {colour}.")
    return isinstance(model().structured_predict(Weather, prompt, colour="blue"), Weather)


@feature("structured output", "by a function")
def _() -> bool:
    prompt = PromptTemplate("The sky is {colour}.")
    llm = model(should_use_structured_outputs=False)
    return isinstance(llm.structured_predict(Weather, prompt, colour="blue"), Weather)


@feature("structured output", "without function calling")
def _() -> bool:
    prompt = PromptTemplate("The sky is {colour}.")
    llm = model(is_function_calling_model=False, should_use_structured_outputs=False)
    return isinstance(llm.structured_predict(Weather, prompt, colour="blue"), Weather)


@feature("logprobs")
def _() -> bool:
    return bool(model(logprobs=True, top_logprobs=2).chat(hello).logprobs)


@feature("usage")
def _() -> bool:
    return model().chat(hello).raw.usage.total_tokens > 0


@feature("errors")
def _() -> bool:
    try:
        model(temperature=-1).chat(hello)
    except Exception as error:
        return "temperature" in str(error)
    return False


@feature("embeddings")
def _() -> bool:
    embedding = OpenAILikeEmbedding(model_name="default", api_base=url, api_key="none")
    return len(embedding.get_text_embedding_batch(["hello", "world"])) == 2
