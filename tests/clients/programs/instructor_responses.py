"""A program of a user of instructor's RESPONSES_TOOLS."""

import sys
from typing import Literal

import instructor
import openai
from features import report
from pydantic import BaseModel


class Person(BaseModel):
    name: Literal["Ada", "Alan"]
    age: Literal[36, 41]


client = instructor.from_openai(
    openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0), mode=instructor.Mode.RESPONSES_TOOLS
)
person = client.responses.create(
    model="default", response_model=Person, max_retries=0, temperature=0, input="Ada is 36 years old."
)
report("responses", {"RESPONSES_TOOLS": person.model_dump()})
