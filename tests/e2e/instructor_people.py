"""A program of a user of instructor, run in the venv of instructor. Prints the results as JSON."""

import json
import sys
from typing import Literal

import instructor
import openai
from pydantic import BaseModel


class Person(BaseModel):
    name: Literal["Ada", "Alan"]
    age: Literal[36, 41]


found = {}
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    client = instructor.from_openai(openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0), mode=mode)
    person = client.chat.completions.create(
        model="default",
        response_model=Person,
        max_retries=0,
        max_tokens=64,
        temperature=0,
        messages=[{"role": "user", "content": "Ada is 36 years old."}],
    )
    found[mode.name] = person.model_dump()
print(json.dumps(found))
