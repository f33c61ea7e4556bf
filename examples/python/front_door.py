"""A tour of `import aici`, on a model in this process or on a server.

    python front_door.py
    python front_door.py http://127.0.0.1:4242

The scripts in the parent folder are different: guests, run in the sandbox under MicroPython, where `import aici` is
the guest's own module. This file is an ordinary Python program.
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import Literal

import aici


@dataclass
class Person:
    name: str
    age: int
    mood: Literal["happy", "tired", "busy"]


def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"It rains in {city}."


def main(server: str | None) -> None:
    with aici.LLM(server=server) as llm:
        print("model:", llm.model)
        print("digits:", llm.generate("The answer is ", aici.regex(r"\d\d")).text)

        person = llm.generate("A person: ", aici.json_schema(Person)).value
        print("person:", person.name, person.age, person.mood)

        print("story:", end=" ")
        for event in llm.stream("Once upon a time", max_tokens=12):
            if isinstance(event, aici.TokenEvent):
                print(event.text, end="", flush=True)
        print()

        questions = [f"Is {number} an even number? " for number in range(20)]
        answers = llm.generate(questions, aici.choice("yes", "no"))
        print("yes:", sum(answer.value == "yes" for answer in answers), "of", len(answers))

        script = aici.script("await $`A colour: `; await gen({ regex: /[a-z]+/, storeVar: 'colour' });", "javascript")
        print("colour:", llm.generate("", script).variables["colour"])

        messages = [{"role": "user", "content": "How is the weather in Oslo?"}]
        answer = llm.chat(messages, tools=[get_weather], tool_choice="required", parallel=False)
        for call in answer.tool_calls:
            print("call:", call.name, "->", call.call())

        try:
            aici.regex("(")
        except aici.UsageError as error:
            print("error:", str(error).splitlines()[0])


async def several(server: str | None) -> None:
    async with aici.AsyncLLM(server=server) as llm:
        digits = aici.regex("[0-9]{2}")
        results = await asyncio.gather(*(llm.generate(f"{number} and ", digits) for number in range(3)))
        print("asyncio:", *(result.text for result in results))


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else None
    main(address)
    asyncio.run(several(address))
