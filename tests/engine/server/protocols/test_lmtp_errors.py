"""LMTP: invalid messages and streams get errors that name the fault, and the connection lives."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.errors import (
    RuntimeDiedError,
    UsageError,
)
from aici_engine.events import FinishReason
from aici_engine.server.link import wire
from aici_engine.server.protocols.lmtp.connection import MAX_STREAMS
from tests.support.fake_engine import fails, silent
from tests.support.lmtp import EOS, GENERATE, connected, run, scores, tokens


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "gpt2"}, "the model gpt2 is not served here"),
        ({"prompt": [5] * 2048}, "2048 tokens"),
        ({"prompt": [True]}, "$.prompt[0]"),
        ({"prompt": [-1]}, "$.prompt[0]"),
        ({"prompt": {"text": "a"}}, "$.prompt"),
        ({"prompt": "a " * 100_000}, "characters"),
        ({"prompt": [{"buffer": "a"}]}, "no buffer 'a'"),
        ({"max_tokens": 0}, "$.max_tokens"),
        ({"max_tokens": "9"}, "$.max_tokens"),
        ({"temperature": -1}, "$.temperature"),
        ({"top_p": 7}, "top_p"),
        ({"top_logprobs": 101}, "$.top_logprobs"),
        ({"logit_bias": {"x": 1}}, "$.logit_bias"),
        ({"logit_bias": {"5": None}}, "$.logit_bias"),
        ({"logit_bias": {"-1": 1}}, "$.logit_bias"),
        ({"logit_bias": {"49152": 1}}, "does not have"),
        ({"do_sample": True}, "do_sample"),
        ({"stop": ["a"]}, "stop"),
        ({"n": 2}, "`n`"),
        ({"guided_regex": "("}, "guided_regex: "),
        ({"guided_choice": []}, "$.guided_choice"),
        ({"guided_regex": "a", "controller": "yes"}, "guided_regex and controller together"),
    ],
)
@run
async def test_an_invalid_stream_gets_an_error_in_token(fields: dict[str, Any], said: str) -> None:
    async with connected() as client:
        await client.generate(**fields)
        [error] = await client.stream()
        assert said in error["error"]
        assert error["code"] in ("invalid_request_error", "not_found_error")
        assert error["retryable"] is False
        await client.generate()
        assert (await client.stream())[-1]["finish_reason"]


@pytest.mark.parametrize("bad", ['"\\ud800"', "[NaN]", "Infinity", "["])
@run
async def test_invalid_json_ends_the_stream_of_its_stream_id(bad: str) -> None:
    async with connected() as client:
        await client.socket.send('GENERATE {"model": "it", "stream_id": "a1", "prompt": ' + bad + "}")
        [error] = await client.stream("a1")
        assert error["code"] == "invalid_request_error"


@pytest.mark.parametrize("left_out", ["model", "prompt"])
@run
async def test_a_missing_field_is_named_in_a_token_error(left_out: str) -> None:
    async with connected() as client:
        fields = {name: value for name, value in GENERATE.items() if name != left_out}
        await client.send("GENERATE", **fields)
        [error] = await client.stream()
        assert f"`{left_out}`" in error["error"]


@pytest.mark.parametrize(
    ("text", "stream_id", "said"),
    [
        ("", None, "'' is not a command"),
        ("GENERATE", None, "GENERATE: "),
        ("GENERATE {", None, "truncated"),
        ('GENERATE {"model": "it", "prompt": [5]}', None, "`stream_id`"),
        ('GENERATE {"model": "it", "prompt": [5], "stream_id": null}', None, "stream_id"),
        ("SCORE [1]", None, "`array`"),
        ("HELLO {}", None, "'HELLO' is not a command"),
        ('HELLO {"stream_id": 7}', 7, "GENERATE, SCORE, MODEL_INFO, CANCEL, BUFFER"),
        ("X" * 100_000, None, "XXX..."),
        ("MODEL_INFO {", None, "truncated"),
        ("MODEL_INFO []", None, "`array`"),
        ('MODEL_INFO {"data": ' + "[" * 20_000, None, "recursion"),
        ('MODEL_INFO {"stream_id": 7}', 7, "`model`"),
        ('MODEL_INFO {"stream_id": 7, "model": "gpt2"}', 7, "gpt2"),
        ('MODEL_INFO {"stream_id": 7, "model": "it", "moddel": 1}', 7, "moddel"),
        ('CANCEL {"stream_id": null}', None, "stream_id"),
        ('CANCEL {"stream_id": "' + "a" * 1000 + '"}', None, "stream_id"),
        ('BUFFER {"stream_id": 7, "buffer": "", "prompt": []}', 7, "$.buffer"),
    ],
)
@run
async def test_an_invalid_message_gets_an_error_in_msg_and_the_connection_lives(
    text: str, stream_id: object, said: str
) -> None:
    async with connected() as client:
        await client.socket.send(text)
        error = await client.message()
        assert error["stream_id"] == stream_id
        assert said in error["error"]
        await client.generate()
        assert (await client.stream())[-1]["finish_reason"]


@run
async def test_binary_messages_get_an_error() -> None:
    async with connected() as client:
        await client.socket.send_bytes(b"\0")
        assert "binary" in (await client.message())["error"]


@run
async def test_nothing_to_score_is_an_error() -> None:
    async with connected() as client:
        await client.send("SCORE", stream_id=1, model="it", prompt=[5], scored=[])
        [error] = await client.stream()
        assert "scored" in error["error"]


@run
async def test_a_taken_stream_id_does_not_affect_the_open_stream() -> None:
    async with connected(silent) as client:
        await client.generate(max_tokens=9)
        await client.generate()
        assert "open stream" in (await client.message())["error"]
        client.engine.client.receive(wire.TokenOut(1, 8, b"x", "x", False, -1.0, []))
        command, [item] = await client.frame()
        assert (command, item["token"]) == ("TOKEN", 8)


@run
async def test_a_flood_of_streams_is_refused_one_by_one() -> None:
    async with connected(silent, capacity=2 * MAX_STREAMS) as client:
        for stream_id in range(MAX_STREAMS + 1):
            await client.generate(stream_id)
        [error] = await client.stream(MAX_STREAMS)
        assert (error["code"], error["retryable"], error["retry_after_s"]) == ("rate_limit_error", True, 1.0)
        await client.send("CANCEL", stream_id=0)
        await client.stream(0)
        await client.generate(0)
        while len(client.engine.submitted) <= MAX_STREAMS:
            await asyncio.sleep(0)


@run
async def test_a_full_queue_is_an_error_to_try_again() -> None:
    async with connected(silent, capacity=1) as client:
        await client.generate(1)
        await client.generate(2)
        [error] = await client.stream(2)
        assert (error["code"], error["retryable"]) == ("rate_limit_error", True)


@run
async def test_a_failure_of_the_engine_is_an_error_with_its_code() -> None:
    failure = wire.Failure.of(RuntimeDiedError("the runtime died", hint="try again"))
    no = fails(wire.Failure.of(UsageError("no")), "x")
    async with connected(fails(failure), fails(failure), no, tokens(11)) as client:  # the first is sent again
        await client.generate()
        [error] = await client.stream()
        assert error["error"] == "the runtime died (try again)"
        assert (error["code"], error["retryable"]) == ("runtime_died", True)
        await client.generate(max_tokens=2)
        token, error = await client.stream()
        assert "token" in token
        assert error["retryable"] is False


_SCALARS = st.none() | st.booleans() | st.integers(-3, 70_000) | st.floats(allow_nan=False) | st.text(max_size=4)
_JSON = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
)


_FIELDS = st.fixed_dictionaries(
    {"model": st.just("it") | _JSON, "prompt": st.just([5]) | _JSON | st.just([{"buffer": "a"}])},
    optional=dict.fromkeys(("max_tokens", "temperature", "logit_bias", "top_logprobs", "scored", "text", "n"), _JSON)
    | {"buffer": st.just("a"), "guided_regex": st.sampled_from(["a", "("])},
)


@settings(max_examples=40, deadline=None)
@given(asked=st.lists(st.tuples(st.sampled_from(["GENERATE", "SCORE", "BUFFER", "CANCEL"]), _FIELDS), max_size=6))
def test_every_message_gets_an_answer(asked: list[tuple[str, dict[str, Any]]]) -> None:
    @run
    async def talk() -> None:
        async with connected(_obliging) as client:
            waiting = set()
            for stream_id, (command, fields) in enumerate(asked):
                await client.send(command, **fields | {"stream_id": stream_id})
                waiting.add(stream_id)
            while waiting:
                command, items = await client.frame()
                for item in items:
                    if command == "MSG" or "error" in item or item.get("finish_reason"):
                        waiting.discard(item["stream_id"])
            await client.send("MODEL_INFO", stream_id="still there", model="it")
            while (await client.message())["stream_id"] != "still there":
                pass

    talk()


def _obliging(submit: wire.Submit) -> list[wire.StreamOut]:
    """Return scores for SCORE, and one token and EOS for GENERATE."""
    scored = submit.score_from is not None
    return list(scores(submit) if scored else tokens(11, EOS, reason=FinishReason.EOS)(submit))


@run
async def test_null_is_not_given() -> None:
    """LMQL's client sends the arguments that its user left out as null."""
    async with connected() as client:
        await client.generate(temperature=None, top_logprobs=None, guided_regex=None, text=None)
        assert (await client.stream())[-1]["finish_reason"]
        assert client.engine.submitted[0].sampling.temperature == 0.0
        await client.generate(temperature=None, top_p=7)
        assert "top_p" in (await client.stream())[0]["error"]
        await client.send("GENERATE", stream_id=None, model="it", prompt="a", temperature=None)
        assert "stream_id" in (await client.message())["error"]
