"""A program of a user of instructor, with OpenAI's and the server's own ways to structured output."""

import sys
from typing import Any, Literal

import instructor
import openai
from features import feature
from pydantic import BaseModel

url = f"{sys.argv[1]}/v1"


class Person(BaseModel):
    name: Literal["Ada", "Alan"]
    age: Literal[36, 41]


question: Any = [{"role": "user", "content": "Ada is 36 years old."}]
common: Any = {"model": "default", "temperature": 0, "max_tokens": 100, "max_retries": 0, "messages": question}


def client(mode: instructor.Mode) -> Any:
    return instructor.from_openai(openai.OpenAI(base_url=url, api_key="none", max_retries=0), mode=mode)


for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):

    @feature("structured output", mode.name)
    def _(mode: instructor.Mode = mode) -> bool:
        return isinstance(client(mode).chat.completions.create(response_model=Person, **common), Person)


for mode in (instructor.Mode.JSON, instructor.Mode.MD_JSON):

    @feature("structured output", mode.name)
    def _(mode: instructor.Mode = mode) -> bool:
        return isinstance(client(mode).chat.completions.create(response_model=Person, **common), Person)


@feature("stream", "create_partial")
def _() -> bool:
    *_, last = client(instructor.Mode.TOOLS).chat.completions.create_partial(response_model=Person, **common)
    return last.age in (36, 41)


@feature("stream", "create_iterable")
def _() -> bool:
    asked = {**common, "max_tokens": 200}
    people = list(client(instructor.Mode.TOOLS).chat.completions.create_iterable(response_model=Person, **asked))
    return all(isinstance(person, Person) for person in people)


@feature("parallel tools", "PARALLEL_TOOLS")
def _() -> bool:
    from collections.abc import Iterable

    people = client(instructor.Mode.PARALLEL_TOOLS).chat.completions.create(
        response_model=Iterable[Person], **{**common, "tool_choice": "required", "max_tokens": 60}
    )
    return all(isinstance(person, Person) for person in people)


@feature("usage")
def _() -> bool:
    _, completion = client(instructor.Mode.TOOLS).chat.completions.create_with_completion(
        response_model=Person, **common
    )
    return completion.usage.total_tokens > 0


@feature("errors")
def _() -> bool:
    try:
        client(instructor.Mode.TOOLS).chat.completions.create(response_model=Person, **{**common, "temperature": -1})
    except Exception as error:
        return "temperature" in str(error)
    return False


@feature("chat", "from_provider")
def _() -> bool:
    ours = instructor.from_provider("openai/default", base_url=url, api_key="none")
    return bool(ours.chat.completions.create(response_model=None, **common).choices[0].message.content)
