"""A table of requests, run by an engine in this process and by a server: the results are the same."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel

import aici
from tests.support.guests import build_test_guest
from tests.support.server import Server

pytestmark = pytest.mark.e2e

PROMPT = "An answer: "
Case = Callable[[], tuple[str, aici.Constraint[Any] | None, Mapping[str, Any]]]


@dataclass
class Person:
    name: str
    age: int


class Size(TypedDict):
    cm: int


class Animal(BaseModel):
    legs: int


FORKS = "await fork(2); await gen({ regex: /[a-z]{3}/ }); setVar('done', 'yes');"
CASES: dict[str, Case] = {
    "plain": lambda: (PROMPT, None, {"max_tokens": 12}),
    "no prompt": lambda: ("", None, {"max_tokens": 4}),
    "sampled": lambda: (PROMPT, None, {"max_tokens": 12, "temperature": 1.2, "top_k": 40, "top_p": 0.9, "seed": 3}),
    "penalties": lambda: (PROMPT, None, {"max_tokens": 12, "repetition_penalty": 1.3, "presence_penalty": 0.5}),
    "biased": lambda: (PROMPT, None, {"max_tokens": 3, "logit_bias": {28: 50.0}}),
    "stop": lambda: ("1, 2, 3", None, {"stop": " 6", "max_tokens": 20}),
    "logprobs": lambda: (PROMPT, None, {"max_tokens": 4, "logprobs": 2}),
    "explain": lambda: (PROMPT, aici.regex("[A-Z][a-z]{3}"), {"explain": 2}),
    "regex": lambda: (PROMPT, aici.regex("[A-Z][a-z]{2,9}"), {}),
    "regex sampled": lambda: (PROMPT, aici.regex("[a-z]{9}"), {"temperature": 1.5, "seed": 7}),
    "regex cut off": lambda: (PROMPT, aici.regex("[a-z]{90}"), {"max_tokens": 4}),
    "grammar": lambda: (PROMPT, aici.grammar('%start s\n%%\ns: "yes" | "no" ", " "because";\n'), {}),
    "shipped grammar": lambda: ("A list: ", aici.grammar("json"), {"max_tokens": 9}),
    "dataclass": lambda: ("A person: ", aici.json_schema(Person), {}),
    "typed dict": lambda: ("A size: ", aici.json_schema(Size), {}),
    "pydantic": lambda: ("A dog: ", aici.json_schema(Animal), {}),
    "schema": lambda: (PROMPT, aici.json_schema({"enum": ["big", "small"]}), {}),
    "choice": lambda: (PROMPT, aici.choice("red", "dark green"), {}),
    "substring": lambda: (PROMPT, aici.substring("the quick brown fox"), {"max_tokens": 8}),
    "named controller": lambda: (PROMPT, aici.controller("regex", "[0-9]{3}"), {}),
    "file, backtracking": lambda: (PROMPT, aici.controller(build_test_guest("splice"), "forty-two"), {}),
    "bytes": lambda: (PROMPT, aici.controller(build_test_guest("forced").read_bytes(), "of course"), {}),
    "script": lambda: ("", aici.script("await $`Two: `; await gen({ regex: /[a-z]{4}/ });", "javascript"), {}),
    "forks": lambda: ("", aici.script(FORKS, "javascript"), {}),
}


@pytest.fixture(scope="module")
def local() -> Iterator[aici.LLM]:
    with aici.LLM() as llm:
        yield llm


@pytest.fixture(scope="module")
def remote(server: Server) -> Iterator[aici.LLM]:
    with aici.LLM(server=server.url) as llm:
        yield llm


def shown(result: aici.Result[Any]) -> dict[str, Any]:
    """Return the fields of a result that must be the same. Batches round differently, so log-probabilities may
    differ by 0.01."""
    fields = ("prompt", "text", "finish_reason", "stop", "logs", "variables")
    document: dict[str, Any] = {name: getattr(result, name) for name in fields}
    document["tokens"] = [(token.token_id, token.data, token.origin) for token in result.tokens]
    usage = result.usage
    document["usage"] = (usage.prompt_tokens, usage.sampled_tokens, usage.ff_tokens)
    document["forks"] = [(fork.index, fork.parent, fork.text, fork.finish_reason, fork.logs) for fork in result.forks]
    document["logprobs"] = [pytest.approx(token.logprob, abs=0.01) for token in result.tokens]
    document["explanations"] = [_shown_explanation(token.explanation) for token in result.tokens]
    document["error"] = str(result.error)
    try:
        document["value"] = result.value
    except aici.AiciError as error:
        document["value"] = (type(error), error.message)
    return document


def _shown_explanation(why: aici.Explanation | None) -> Any:
    if why is None:
        return None
    probabilities = [why.probability, why.masked_probability, *(each.probability for each in why.likeliest)]
    others = [(each.token_id, each.text, each.allowed) for each in why.likeliest]
    return why.num_allowed, others, why.guest_s is None, [pytest.approx(each, abs=0.01) for each in probabilities]


@pytest.mark.parametrize("name", CASES)
def test_both_modes_give_the_same(local: aici.LLM, remote: aici.LLM, name: str) -> None:
    prompt, constraint, options = CASES[name]()
    here = local.generate(prompt, constraint, **options)
    there = remote.generate(prompt, constraint, **options)
    assert here.text
    assert shown(there) == shown(here)
    kinds = (aici.AcceptedEvent, aici.BacktrackEvent, aici.FinishEvent)
    streams = [list(llm.stream(prompt, constraint, **options)) for llm in (local, remote)]
    outlines = [[type(event) for event in events if isinstance(event, kinds)] for events in streams]
    assert outlines[0] == outlines[1]


def test_instances_come_back(remote: aici.LLM) -> None:
    assert isinstance(remote.generate("A person: ", aici.json_schema(Person)).value, Person)
    assert isinstance(remote.generate("A dog: ", aici.json_schema(Animal)).value, Animal)


def test_a_batch_is_the_same(local: aici.LLM, remote: aici.LLM) -> None:
    prompts = [f"{number} is " for number in range(100)]
    kinds = aici.choice("even", "odd", "prime")
    values = [result.value for result in remote.generate(prompts, kinds)]
    assert values == [result.value for result in local.generate(prompts, kinds)]


def test_a_conversation_is_the_same(local: aici.LLM, remote: aici.LLM) -> None:
    messages = [{"role": "user", "content": "Name a colour."}]
    for constraint in (None, aici.regex("[A-Z][a-z]+\\.")):
        texts = [llm.chat_stream(messages, constraint, max_tokens=12).result().text for llm in (local, remote)]
        assert texts[0] == texts[1] != ""


def get_weather(city: str, days: int = 1) -> str:
    """Return the weather of a city."""
    return f"{city}: rain for {days} days"


def give_point(where: Person) -> str:
    """Give somebody a point."""
    return f"{type(where).__name__} {where.name}"


WEATHER = [{"role": "user", "content": "How is the weather in Rome?"}]


@pytest.mark.parametrize("choice", ["auto", "required", "get_weather", "none"])
def test_tools_are_called_alike(local: aici.LLM, remote: aici.LLM, choice: str) -> None:
    tools = [get_weather, give_point]
    answers = [llm.chat(WEATHER, tools=tools, tool_choice=choice, max_tokens=60) for llm in (local, remote)]
    shown = [
        (answer.text, answer.finish_reason, [(call.name, call.arguments) for call in answer.tool_calls])
        for answer in answers
    ]
    assert shown[0] == shown[1]
    assert answers[0].prompt_tokens == answers[1].prompt_tokens > 10
    assert answers[0].output_tokens == answers[1].output_tokens > 0
    if choice == "get_weather":
        [call] = answers[0].tool_calls
        assert call.function is get_weather
        assert "rain" in call.call()


def test_a_round_of_tools(local: aici.LLM, remote: aici.LLM) -> None:
    texts = []
    for llm in (local, remote):
        first = llm.chat(WEATHER, tools=[give_point], tool_choice="give_point", max_tokens=80)
        [call] = first.tool_calls
        assert call.call().startswith("Person ")
        messages = [*WEATHER, first.message, call.message(call.call())]
        texts.append(llm.chat(messages, tools=[give_point], tool_choice="none", max_tokens=10).text)
    assert texts[0] == texts[1]


def test_a_chat_under_a_constraint(local: aici.LLM, remote: aici.LLM) -> None:
    values = [llm.chat(WEATHER, aici.choice("good", "bad")).value for llm in (local, remote)]
    assert values[0] == values[1] in ("good", "bad")


Failing = Callable[[aici.LLM], object]
FAILURES: dict[str, tuple[type[aici.AiciError], str, Failing]] = {
    "guest traps": (
        aici.ControllerError,
        "unreachable",
        lambda llm: llm.generate(PROMPT, aici.controller(build_test_guest("trap"))),
    ),
    "script throws": (
        aici.ControllerError,
        "no luck",
        lambda llm: llm.generate("", aici.script("throw new Error('no luck')", "javascript")),
    ),
    "unknown controller": (aici.NotFoundError, "nobody", lambda llm: llm.generate("x", aici.controller("nobody"))),
    "long prompt": (aici.UsageError, "9001|9,001|tokens", lambda llm: llm.generate("long " * 9000)),
    "wrong number": (aici.UsageError, "temperature", lambda llm: llm.generate("x", temperature=-1.0)),
    "half a surrogate pair": (aici.UsageError, "Unicode", lambda llm: llm.generate("\udcff")),
    "tools and a constraint": (
        aici.UsageError,
        "do not go together",
        lambda llm: llm.chat(WEATHER, aici.regex("a"), tools=[get_weather]),
    ),
    "explain in a chat": (aici.UsageError, "no explanations", lambda llm: llm.chat(WEATHER, explain=2)),
    "no messages": (aici.UsageError, "messages", lambda llm: llm.chat([])),
    "result without a call": (
        aici.UsageError,
        "no message before it",
        lambda llm: llm.chat([{"role": "tool", "tool_call_id": "x", "content": "y"}]),
    ),
    "in a list": (aici.UsageError, "tokens", lambda llm: llm.generate(["short", "long " * 9000])),
}


@pytest.mark.parametrize("name", FAILURES)
def test_both_modes_fail_alike(local: aici.LLM, remote: aici.LLM, name: str) -> None:
    kind, message, fail = FAILURES[name]
    for llm in (local, remote):
        with pytest.raises(kind, match=message) as caught:
            fail(llm)
        assert type(caught.value) is kind


def test_failures_stand_in_the_results_of_a_list(local: aici.LLM, remote: aici.LLM) -> None:
    for llm in (local, remote):
        results = llm.generate(["", ""], aici.script("throw new Error('no luck')", "javascript"))
        assert all("no luck" in str(result.error) for result in results)


def test_closing_ends_streams(server: Server) -> None:
    llm = aici.LLM(server=server.url)
    stream = llm.stream("Once", aici.regex("(a|b)*"), max_tokens=5000)
    assert isinstance(next(iter(stream)), aici.AcceptedEvent)
    llm.close()
    assert stream.result().finish_reason is aici.FinishReason.ABORT
    with pytest.raises(aici.UnavailableError):
        llm.generate("x")


@pytest.mark.parametrize("mode", ["local", "server"])
def test_asyncio(server: Server, mode: str) -> None:
    async def use() -> None:
        url = server.url if mode == "server" else None
        async with aici.AsyncLLM(server=url) as llm:
            digits = aici.regex("[0-9]{2}")
            assert (await llm.generate(PROMPT, digits)).text.isdigit()
            tasks = [llm.generate(f"{number}: ", digits) for number in range(30)]
            assert all(result.value.isdigit() for result in await asyncio.gather(*tasks))
            assert len(await llm.generate(["a", "b"], digits)) == 2
            events = [event async for event in llm.stream(PROMPT, max_tokens=3)]
            assert isinstance(events[-1], aici.FinishEvent)
            pieces = [
                piece async for piece in llm.chat_stream([{"role": "user", "content": "Hi"}], max_tokens=3).text()
            ]
            assert pieces
            with pytest.raises(aici.ControllerError, match="no luck"):
                await llm.generate("", aici.script("throw new Error('no luck')", "javascript"))
            async for _ in llm.stream("Once", max_tokens=5000):
                break
            answer = await llm.chat(WEATHER, tools=[get_weather], tool_choice="required", max_tokens=60)
            assert answer.tool_calls
            talk = asyncio.create_task(llm.chat(WEATHER, max_tokens=4000, ignore_eos=True))
            await asyncio.sleep(0.5)
            talk.cancel()
            with pytest.raises(asyncio.CancelledError):
                await talk
            task = asyncio.create_task(llm.generate("Once", max_tokens=5000))
            await asyncio.sleep(0.5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(use())


def test_an_async_llm_is_opened_first() -> None:
    with pytest.raises(aici.UsageError, match="not open"):
        aici.AsyncLLM().stream("x")
