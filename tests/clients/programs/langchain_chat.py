"""A program of a user of LangChain and LangGraph, with ChatOpenAI and ChatAnthropic."""

import sys
from typing import Any, Literal

from features import feature
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

url = sys.argv[1]


class Weather(BaseModel):
    sky: Literal["clear", "cloudy"]


@tool
def weather(city: Literal["Oslo", "Rome"]) -> str:
    """Return the weather of a city."""
    return "clear"


def chat(**fields: Any) -> ChatOpenAI:
    more = {"max_tokens": 60, "temperature": 0, "max_retries": 0, **fields}
    return ChatOpenAI(model="default", base_url=f"{url}/v1", api_key="none", **more)


def anthropic(**fields: Any) -> ChatAnthropic:
    return ChatAnthropic(
        model="claude-sonnet-4-5", base_url=url, api_key="none", max_tokens=60, max_retries=0, **fields
    )


question = HumanMessage("How is the weather in Rome and in Oslo?")


@feature("chat")
def _() -> bool:
    return bool(chat().invoke("Say hello.").text)


@feature("chat", "batch")
def _() -> bool:
    return all(answer.text for answer in chat().batch(["Say hello.", "Say goodbye."]))


@feature("stream")
def _() -> bool:
    return "".join(chunk.text for chunk in chat().stream("Say hello.")) == chat().invoke("Say hello.").text


@feature("multi-turn", "LangGraph, with a checkpointer")
def _() -> bool:
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [chat().invoke(state["messages"])]})
    graph.add_edge(START, "model")
    app = graph.compile(checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}
    app.invoke({"messages": [HumanMessage("Say hello.")]}, thread)
    return len(app.invoke({"messages": [HumanMessage("Again.")]}, thread)["messages"]) == 4


@feature("multi-turn", "create_agent with a name")
def _() -> bool:
    agent = create_agent(chat(), tools=[], name="helper", checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}
    agent.invoke({"messages": [HumanMessage("Say hello.", name="ada")]}, thread)
    last = agent.invoke({"messages": [HumanMessage("Again.", name="ada")]}, thread)["messages"][-1]
    return last.name == "helper" and bool(last.text)


@feature("tools")
def _() -> bool:
    call = chat().bind_tools([weather], tool_choice="any", parallel_tool_calls=False).invoke([question])
    results = [ToolMessage(weather.invoke(each["args"]), tool_call_id=each["id"]) for each in call.tool_calls]
    return bool(chat().invoke([question, call, *results]).text)


@feature("tools", "create_agent")
def _() -> bool:
    agent = create_agent(chat(max_tokens=200), tools=[weather], name="helper")
    return bool(agent.invoke({"messages": [question]}, {"recursion_limit": 8})["messages"])


@feature("parallel tools")
def _() -> bool:
    both = chat(max_tokens=200, extra_body={"min_tokens": 30}).bind_tools([weather], tool_choice="any")
    one = chat().bind_tools([weather], tool_choice="any", parallel_tool_calls=False)
    return len(both.invoke([question]).tool_calls) > 1 and len(one.invoke([question]).tool_calls) == 1


for method in ("json_schema", "function_calling"):

    @feature("structured output", method)
    def _(method: Any = method) -> bool:
        return isinstance(chat().with_structured_output(Weather, method=method).invoke("The sky is blue."), Weather)


@feature("structured output", "json_mode")
def _() -> bool:
    asked = chat(max_tokens=200).with_structured_output(Weather, method="json_mode", include_raw=True)
    return bool(asked.invoke("The sky is blue. Answer in JSON.")["raw"])


@feature("structured output", "ToolStrategy")
def _() -> bool:
    one = chat(max_tokens=200, extra_body={"parallel_tool_calls": False})
    agent = create_agent(one, tools=[], response_format=ToolStrategy(Weather))
    asked = {"messages": [HumanMessage("The sky is blue.")]}
    return isinstance(agent.invoke(asked, {"recursion_limit": 12})["structured_response"], Weather)


@feature("tools + structured output", "ProviderStrategy")
def _() -> bool:
    agent = create_agent(chat(max_tokens=200), tools=[weather], response_format=ProviderStrategy(Weather))
    asked = {"messages": [HumanMessage("The sky is blue.")]}
    return isinstance(agent.invoke(asked, {"recursion_limit": 12})["structured_response"], Weather)


@feature("constraints")
def _() -> bool:
    return chat(extra_body={"guided_regex": "yes|no"}).invoke("Is tea hot?").text in ("yes", "no")


@feature("messages", "text, stream, tools, structured output")
def _() -> bool:
    text = anthropic().invoke("Say hello.").text
    streamed = "".join(chunk.text for chunk in anthropic().stream("Say hello."))
    call = anthropic().bind_tools([weather], tool_choice="any").invoke([question]).tool_calls[0]
    typed = anthropic().with_structured_output(Weather).invoke("The sky is blue.")
    return bool(text and streamed and call["args"]["city"]) and isinstance(typed, Weather)


@feature("logprobs")
def _() -> bool:
    answer = chat(logprobs=True, top_logprobs=2).invoke("Say hello.")
    return len(answer.response_metadata["logprobs"]["content"]) > 0


@feature("usage")
def _() -> bool:
    chunks = [chunk.usage_metadata for chunk in chat(stream_usage=True).stream("Say hello.") if chunk.usage_metadata]
    return chunks[-1]["total_tokens"] == chat().invoke("Say hello.").usage_metadata["total_tokens"]


@feature("errors")
def _() -> bool:
    try:
        chat(temperature=-1).invoke("Say hello.")
    except Exception as error:
        return "temperature" in str(error)
    return False


@feature("embeddings")
def _() -> bool:
    model = OpenAIEmbeddings(model="default", base_url=f"{url}/v1", api_key="none", check_embedding_ctx_length=False)
    return len(model.embed_documents(["hello", "world"])) == 2
