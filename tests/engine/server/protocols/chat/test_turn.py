"""Turns over a scripted engine: the generations of a turn, and the deltas that result."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import jsonschema
import pytest

from aici_base.errors import ControllerError, UsageError
from aici_controllers.constraints import SPACED
from aici_engine.chat.tool_syntax import GENERIC
from aici_engine.chat.tools import PastCall, Tool, calls_schema
from aici_engine.config import SamplingParams
from aici_engine.events import FinishReason
from aici_engine.request import ControllerCall
from aici_engine.server.link import wire
from aici_engine.server.protocols.chat.collect import CollectedCall, CollectedTurn, collect_turns
from aici_engine.server.protocols.chat.turn import (
    Named,
    TurnEnd,
    TurnRequest,
    TurnUsage,
    constraints_of_tools,
    run_turn,
)
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.constraints import module_id
from aici_engine.server.service.service import Service
from tests.support.fake_engine import FakeEngine, Script, fails, says, silent
from tests.support.fake_service import fake_service, vocabulary

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = (Tool("weather", "", CITY), Tool("noth", "", {}), Tool("nothing", "", {}))
PROMPT = [1, 2, 3]
CALL = ('{"na', 'me":"weather","arg', 'uments":{"city":"B', 'onn"}', "}")
MADE = ("weather", '{"city":"Bonn"}')


def turn(*scripts: Script, **asked: object) -> tuple[CollectedTurn, FakeEngine]:
    service, engine = fake_service(*scripts)
    [answer] = asyncio.run(
        _collected(service, {"prompt": PROMPT, "sampling": SamplingParams(), "tools": TOOLS, **asked})
    )
    assert service.client.num_streams == 0
    return answer, engine


async def _collected(service: Service, asked: dict[str, Any]) -> list[CollectedTurn]:
    choice, syntax = asked.get("tool_choice", "none"), asked.get("syntax", GENERIC)
    constraints = await constraints_of_tools(
        service.constraints.of(Principal()), asked["tools"], choice, SPACED, syntax
    )
    return await collect_turns([run_turn(service, Principal(), TurnRequest(**asked, **constraints._asdict()))])


def end(answer: CollectedTurn) -> TurnEnd:
    assert answer.end is not None
    return answer.end


def made(calls: list[CollectedCall]) -> list[tuple[str, str]]:
    assert len({call.call_id for call in calls}) == len(calls)
    return [(call.name, call.arguments) for call in calls]


def asked_after_prompt(submit: wire.Submit) -> str:
    assert submit.prompt[: len(PROMPT)] == PROMPT
    return vocabulary().decode(submit.prompt[len(PROMPT) :])


@pytest.mark.parametrize(
    ("script", "reason", "stop"),
    [
        (says("a", "b"), "end", None),
        (says("a", "b", reason=FinishReason.STOP), "end", None),
        (says("a", "b", reason=FinishReason.LENGTH), "length", None),
        (says("a", "b", reason=FinishReason.STOP_STRING, stop="c"), "stop", "c"),
    ],
)
def test_text_alone(script: Script, reason: str, stop: str | None) -> None:
    controller = ControllerCall("m", "x")
    sampling = SamplingParams(stop=("c",), max_tokens=9, logprobs=2, ignore_eos=True)
    answer, engine = turn(script, controller=controller, sampling=sampling, score_from=1)
    assert answer.text == "ab"
    assert [token.data for token in answer.tokens] == [b"a", b"b"]
    assert end(answer) == TurnEnd(reason, TurnUsage(3, 2, 0), "ab", stop)  # type: ignore[arg-type]
    [submit] = engine.submitted
    assert (submit.sampling, submit.controller, submit.argument, submit.score_from) == (sampling, "m", "x", 1)


def test_auto_without_a_call() -> None:
    sampling = SamplingParams(stop=tuple("abcdefghijklmnop"))
    answer, engine = turn(says("Hi"), tool_choice="auto", sampling=sampling)
    assert (answer.text, answer.calls, end(answer).reason) == ("Hi", [], "end")
    [submit] = engine.submitted
    assert submit.sampling.stop == (*sampling.stop, "<tool_call>")
    assert submit.controller is None


def test_auto_with_two_calls() -> None:
    mark = says("Let me", " see ", reason=FinishReason.STOP_STRING, stop="<tool_call>")
    sampling = SamplingParams(max_tokens=20, stop=("x",), logprobs=1, ignore_eos=True, seed=3)
    answer, engine = turn(
        mark, says(*CALL), says("\n<tool", "_call>\n"), says('{"name":"nothing","arguments":{}}'), says(""),
        tool_choice="auto", sampling=sampling,
    )  # fmt: skip
    assert answer.text == "Let me see "
    assert made(answer.calls) == [MADE, ("nothing", "{}")]
    assert end(answer) == TurnEnd("tool_calls", TurnUsage(3, 11, 0), "Let me see ")
    call = "\n</tool_call>"
    first = "Let me see <tool_call>\n"
    second = first + "".join(CALL) + call + "\n<tool_call>\n"
    third = second + '{"name":"nothing","arguments":{}}' + call
    submits = engine.submitted
    assert [asked_after_prompt(submit) for submit in submits] == [
        "",
        first,
        first + "".join(CALL) + call,
        second,
        third,
    ]
    assert [submit.sampling.max_tokens for submit in submits] == [20, 18, 13, 11, 10]
    schema, more = module_id("json_schema"), module_id("regex")
    assert [submit.controller for submit in submits] == [None, schema, more, schema, more]
    for submit in submits[1:]:
        assert (submit.sampling.stop, submit.sampling.logprobs, submit.sampling.ignore_eos) == ((), None, False)
        assert submit.sampling.seed == 3


def test_required_begins_with_a_call_and_makes_one_call_without_parallel() -> None:
    answer, engine = turn(says(*CALL), tool_choice="required", parallel=False)
    assert (answer.text, made(answer.calls), end(answer).reason) == ("", [MADE], "tool_calls")
    assert [asked_after_prompt(submit) for submit in engine.submitted] == ["<tool_call>\n"]


def test_a_named_tool_is_the_only_one() -> None:
    answer, engine = turn(says('{"name":"nothing","arguments":{"a":[1]}}'), tool_choice=Named("nothing"))
    assert made(answer.calls) == [("nothing", '{"a":[1]}')]
    [submit] = engine.submitted
    assert "weather" not in str(submit.argument)
    assert '"nothing"' in str(submit.argument)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_arguments_come_as_they_are_written_however_they_are_cut(size: int) -> None:
    text = '{"name":"nothing","arguments":{"a":"}} ↩"}}'
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    answer, _ = turn(says(*pieces), says(""), tool_choice="required")
    assert made(answer.calls) == [("nothing", '{"a":"}} ↩"}')]


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_a_call_may_have_spaces_where_the_constraint_allows_them(size: int) -> None:
    text = '{"name": "weather", "arguments": {"city": "Bonn"}}'
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    answer, _ = turn(says(*parts), tool_choice=Named("weather"))
    assert made(answer.calls) == [("weather", '{"city": "Bonn"}')]


def test_a_call_cut_off_by_the_limit_ends_with_length() -> None:
    answer, _ = turn(says(*CALL[:3], reason=FinishReason.LENGTH), tool_choice="required")
    assert made(answer.calls) == [("weather", '{"city":"')]
    assert end(answer).reason == "length"


def test_no_room_for_a_call_is_an_end_by_length() -> None:
    mark = says("a", "b", reason=FinishReason.STOP_STRING, stop="<tool_call>")
    answer, engine = turn(mark, silent, tool_choice="auto", sampling=SamplingParams(max_tokens=2))
    assert end(answer) == TurnEnd("length", TurnUsage(3, 2, 0), "ab")
    assert len(engine.submitted) == 1


def test_no_room_for_another_call_takes_nothing_from_the_first() -> None:
    answer, _ = turn(says(*CALL), silent, tool_choice="required", sampling=SamplingParams(max_tokens=5))
    assert (made(answer.calls), end(answer).reason) == ([MADE], "tool_calls")


def test_a_failure_in_any_part_is_raised() -> None:
    failure = wire.Failure("controller_error", "it trapped")
    mark = says("a", reason=FinishReason.STOP_STRING, stop="<tool_call>")
    for scripts in ([fails(failure, "a")], [mark, fails(failure)], [mark, says(*CALL), fails(failure)]):
        with pytest.raises(ControllerError, match="it trapped"):
            turn(*scripts, tool_choice="auto")


def test_an_unsupported_schema_is_refused_before_any_text() -> None:
    bad = Tool("bad", "", {"type": "object", "properties": {"a": {"type": "strin"}}})
    service, engine = fake_service()
    with pytest.raises(UsageError, match=r"the parameters of the tool bad: .*strin"):
        asyncio.run(constraints_of_tools(service.constraints.of(Principal()), (*TOOLS, bad), "auto", SPACED, GENERIC))
    assert engine.submitted == []


def test_a_warning_names_its_tool_among_those_that_may_be_called() -> None:
    odd = Tool("odd", "", {"properties": {"a": {"colour": 1}}, "shapes": {"arguments": {}}})
    service, _ = fake_service()
    for tools, choice in (((*TOOLS, odd), "auto"), ((odd,), "required"), ((*TOOLS, odd), Named("odd"))):
        calls = asyncio.run(
            constraints_of_tools(service.constraints.of(Principal()), tools, choice, SPACED, GENERIC)
        ).calls
        request = TurnRequest(prompt=PROMPT, sampling=SamplingParams(), tools=tools, tool_choice=choice, calls=calls)
        assert request.warnings == (
            "tool odd: not enforced: #/shapes: unknown keyword",
            "tool odd: not enforced: #/properties/a/colour: unknown keyword",
        )
    assert (
        asyncio.run(constraints_of_tools(service.constraints.of(Principal()), (odd,), "none", SPACED, GENERIC)).calls
        is None
    )


def test_removed_tokens_are_not_in_the_answer() -> None:
    def script(submit: wire.Submit) -> Iterable[wire.StreamOut]:
        for number, text in enumerate(("a", "b", "c")):
            yield wire.TokenOut(submit.stream, number, text.encode(), text, False, None, [])
        yield wire.BacktrackOut(submit.stream, 2)
        yield wire.TokenOut(submit.stream, 7, b"d", " ↩ d", True, None, [])
        yield wire.FinishOut(submit.stream, FinishReason.STOP, "", wire.UsageOut(3, 3, 1), text="ad")

    answer, _ = turn(script, tools=())
    assert (answer.text, [token.token for token in answer.tokens]) == ("ad", [0, 7])


def test_closing_a_turn_ends_its_sequence() -> None:
    async def leave() -> None:
        service, engine = fake_service(lambda submit: [wire.TokenOut(submit.stream, 0, b"a", "a", False, None, [])])
        deltas = run_turn(service, Principal(), TurnRequest(prompt=PROMPT, sampling=SamplingParams()))
        await anext(deltas)
        await deltas.aclose()
        assert engine.aborted == [1]

    asyncio.run(leave())


def test_the_schema_of_calls_allows_calls_of_the_tools_and_nothing_else() -> None:
    nested = {"type": "object", "properties": {"at": {"$ref": "#/$defs/at"}}, "$defs": {"at": {"type": "integer"}}}
    schema = json.loads(calls_schema([*TOOLS, Tool("nested", "", nested)]))
    allowed = jsonschema.Draft202012Validator(schema).is_valid
    assert allowed({"name": "weather", "arguments": {"city": "Bonn"}})
    assert allowed({"name": "nothing", "arguments": {"x": 1}})
    assert allowed({"name": "nested", "arguments": {"at": 1}})
    assert not allowed({"name": "nested", "arguments": {"at": "1"}})
    assert not allowed({"name": "weather", "arguments": {}})
    assert not allowed({"name": "other", "arguments": {}})
    assert not allowed({"name": "weather", "arguments": {"city": "Bonn"}, "more": 1})


def test_a_call_is_written_as_json_between_marks() -> None:
    text = GENERIC.written([PastCall("c", "weather", {"city": "Bönn ↩"})])
    assert text == '<tool_call>\n{"name":"weather","arguments":{"city":"Bönn ↩"}}\n</tool_call>'


def test_keys_do_not_share_cached_prompts() -> None:
    service, engine = fake_service()
    for name in ("alice", "bob", "alice"):
        principal = Principal(name=name)
        asyncio.run(
            collect_turns([run_turn(service, principal, TurnRequest(prompt=PROMPT, sampling=SamplingParams()))])
        )
    alice, bob, alice_too = (submit.salt for submit in engine.submitted)
    assert alice == alice_too != bob


def test_cached_tokens_are_those_of_the_first_generation() -> None:
    """Later generations of a turn hit the cache with tokens of the turn. Those do not count as cached."""
    parts = [
        says("I look.", reason=FinishReason.STOP_STRING, stop="<tool_call>", num_cached=2),
        says(*CALL, num_cached=9),
    ]
    answer, _ = turn(*parts, tool_choice="auto", parallel=False)
    assert (end(answer).reason, end(answer).usage.cached) == ("tool_calls", 2)


DOCUMENT = ('{"a"', ": 1", "}")


def test_a_document_or_calls_gives_a_document() -> None:
    """openai-agents `Agent(tools=, output_type=)`: the answer after the tool's result."""
    sampling = SamplingParams(stop=("x",), logprobs=1)
    asked = {"tool_choice": "auto", "document": ControllerCall("doc", ""), "sampling": sampling}
    answer, engine = turn(says(*DOCUMENT), **asked)
    assert (answer.text, answer.calls, end(answer).reason) == ('{"a": 1}', [], "end")
    assert [token.data for token in answer.tokens] == [b'{"a"', b": 1", b"}"]
    [submit] = engine.submitted
    assert (submit.controller, submit.sampling) == ("doc", sampling)


def test_a_document_or_calls_gives_calls() -> None:
    scripts = (says("", "<", "tool_", "call>"), says(*CALL), says(""))
    answer, engine = turn(*scripts, tool_choice="auto", document=ControllerCall("doc", ""))
    assert (answer.text, made(answer.calls), end(answer).reason) == ("", [MADE], "tool_calls")
    first = engine.submitted[1]
    assert asked_after_prompt(first) == "<tool_call>\n"
    assert first.controller == module_id("json_schema")


@pytest.mark.parametrize("texts", [("<tool",), ('{"a"',)])
def test_a_document_or_a_call_that_was_cut_off(texts: tuple[str, ...]) -> None:
    script = says(*texts, reason=FinishReason.LENGTH)
    answer, engine = turn(script, tool_choice="auto", document=ControllerCall("doc", ""))
    assert (answer.text, answer.calls, end(answer).reason) == ("" if "<" in texts[0] else texts[0], [], "length")
    assert len(engine.submitted) == 1
