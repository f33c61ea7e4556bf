"""LMTP through a WebSocket: frames, streams, their ends, and events."""

import asyncio
import gc
import json
import re
import warnings
from pathlib import Path

import pytest
from msgspec import Raw, Struct
from starlette.testclient import TestClient

from aici_base.errors import (
    AiciError,
    ControllerError,
    ForbiddenError,
    NotFoundError,
    RateLimitError,
    RuntimeDiedError,
    TimedOutError,
    UnavailableError,
    UsageError,
)
from aici_engine.config import SamplingParams
from aici_engine.events import FinishReason
from aici_engine.server.api.app import create_app
from aici_engine.server.link import wire
from aici_engine.server.protocols.lmtp import messages
from aici_engine.server.protocols.lmtp.connection import CancelledStreamError, Connection
from aici_engine.server.protocols.lmtp.messages import parse
from aici_engine.server.protocols.lmtp.send_queue import SendQueue
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.models import Models
from tests.support.fake_engine import FakeEngine, silent
from tests.support.fake_service import service_over
from tests.support.lmtp import EOS, GENERATE, connected, run, scores, tokens
from tests.support.websocket import Socket


@pytest.mark.parametrize("path", ["/", "/lmtp"])
@run
async def test_a_stream_of_tokens(path: str) -> None:
    async with connected(tokens(11, 9), path=path) as client:
        await client.generate(max_tokens=2)
        assert await client.stream() == [
            {
                "token": 11,
                "stream_id": 1,
                "logprob": -0.5,
                "finish_reason": None,
                "top_logprobs": {"11": -0.5, "9": -0.25},
            },
            {"token": 9, "stream_id": 1, "logprob": -1.0, "finish_reason": "length", "top_logprobs": {"9": -1.0}},
        ]
        assert client.engine.submitted[0].prompt == [5, 6, 7]


@run
async def test_defaults_of_generate() -> None:
    async with connected() as client:
        await client.send("GENERATE", stream_id=1, model="it", prompt=[5])
        while not client.engine.submitted:
            await asyncio.sleep(0)
        wanted = SamplingParams(temperature=0.0, top_k=0, max_tokens=32, logprobs=1)
        assert client.engine.submitted[0].sampling == wanted


@run
async def test_fields_reach_the_engine() -> None:
    asked = {
        "max_tokens": 9,
        "temperature": 1.2,
        "top_p": 0.5,
        "top_k": 4,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "seed": 7,
    }
    async with connected() as client:
        await client.generate(**asked, top_logprobs=3, length_penalty=0.6, logit_bias={"8": 100, "49151": -1.5})
        await client.stream()
        wanted = SamplingParams(**asked, logprobs=3, logit_bias={8: 100.0, 49151: -1.5})  # type: ignore[arg-type]
        assert client.engine.submitted[0].sampling == wanted


@run
async def test_max_tokens_ends_with_the_context() -> None:
    async with connected() as client:
        await client.generate(prompt=[5] * 2047, max_tokens=100_000)
        await client.stream()
        assert client.engine.submitted[0].sampling.max_tokens == 1


@pytest.mark.parametrize("sampled", [0, EOS])
@run
async def test_every_end_of_text_is_the_tokenizers_and_comes_once(sampled: int) -> None:
    async with connected(tokens(11, sampled, reason=FinishReason.EOS)) as client:
        await client.generate(max_tokens=9)
        first, last = await client.stream()
        assert first["finish_reason"] is None
        assert (last["token"], last["finish_reason"], last["logprob"]) == (EOS, "stop", -1.0)
        assert list(last["top_logprobs"].items()) == [(str(EOS), -1.0), ("9", -0.25)]


@run
async def test_the_bias_of_eos_applies_to_every_eos_token() -> None:
    async with connected() as client:
        await client.generate(logit_bias={str(EOS): -100, "5": 1})
        await client.stream()
        assert client.engine.submitted[0].sampling.logit_bias == {0: -100.0, EOS: -100.0, 5: 1.0}


@run
async def test_a_tokenizer_may_be_larger_than_the_model() -> None:
    async with connected() as client:
        await client.generate(logit_bias={"49152": -100, "5": -100})
        await client.stream()
        assert client.engine.submitted[0].sampling.logit_bias == {5: -100.0}


@run
async def test_special_tokens_within_a_text_are_tokens() -> None:
    """Only the end of text ends a stream; the engine goes on after other tokens without bytes."""
    async with connected(tokens(0, 11)) as client:
        await client.generate(max_tokens=2)
        assert [item["token"] for item in await client.stream()] == [0, 11]


@run
async def test_tokens_of_a_step_come_together_and_at_once() -> None:
    async with connected(silent) as client:
        for stream_id in (1, 2, 3):
            await client.generate(stream_id, max_tokens=9)
        while len(client.engine.submitted) < 3:
            await asyncio.sleep(0)
        for submit in client.engine.submitted:
            client.engine.client.receive(wire.TokenOut(submit.stream, 8, b"x", "x", False, -1.0, []))
        command, items = await client.frame()
        assert command == "TOKEN"
        assert [item["stream_id"] for item in items] == [1, 2, 3]
        assert [item["finish_reason"] for item in items] == [None] * 3


@run
async def test_streams_ids_come_back_as_they_were() -> None:
    async with connected() as client:
        for stream_id in ("a", 1.5, [1, {"b": None}], True):
            await client.generate(stream_id)
            await client.stream(stream_id)


@run
async def test_score() -> None:
    async with connected(scores) as client:
        await client.send("SCORE", stream_id=1, model="it", prompt=[5], scored=[6004, 7])
        assert await client.stream() == [
            {"token": 6004, "stream_id": 1, "logprob": -1.0, "finish_reason": None},
            {"token": 7, "stream_id": 1, "logprob": -2.0, "finish_reason": "stop"},
        ]
        submit = client.engine.submitted[0]
        assert (submit.prompt, submit.score_from, submit.sampling.max_tokens) == ([5, 6004, 7], 1, 0)
        await client.send("SCORE", stream_id=2, model="it", prompt="", scored=["hi", 7], text=True)
        first, _ = await client.stream(2)
        assert (first["text"], first["logprob"]) == ("hi", 0.0)


@run
async def test_a_controllers_stream_ends_with_the_end_of_text_too() -> None:
    def controlled(submit: wire.Submit) -> list[wire.StreamOut]:
        stream = submit.stream
        return [
            wire.TokenOut(stream, 5, b"x", "x", True, 0.0, [(5, 0.0)]),
            wire.TokenOut(stream, 6, b"y", "y", False, -1.0, []),
            wire.BacktrackOut(stream, 1),
            wire.TokenOut(stream, 7, b"z", " ↩ z", True, 0.0, []),
            wire.FinishOut(stream, FinishReason.STOP, "", wire.UsageOut(1, 1, 2)),
        ]

    async with connected(controlled) as client:
        await client.generate(controller="mine", controller_arg={"a": 1}, text=True, max_tokens=2, buffer="it")
        items = await client.stream()
        assert [item.get("token") for item in items] == [5, 6, None, 7, EOS]
        assert items[2] == {"stream_id": 1, "backtrack": 1}
        assert [item["finish_reason"] for item in items if "token" in item] == [None, None, None, "stop"]
        assert "".join(item.get("text", "") for item in items) == "xy ↩ z"
        submit = client.engine.submitted[0]
        assert (submit.controller, submit.argument) == ("mine", '{"a":1}')
        await client.generate(prompt=[{"buffer": "it"}])
        while len(client.engine.submitted) < 2:
            await asyncio.sleep(0)
        assert client.engine.submitted[1].prompt == [5, 6, 7, 5, 7]


@run
async def test_model_info() -> None:
    async with connected() as client:
        await client.send("MODEL_INFO", stream_id=4, model="llama.cpp:it", data={"model": "it"})
        answer = await client.message()
        assert answer["stream_id"] == 4
        assert answer["model_info"]["model"] == "it"
        assert answer["model_info"]["eos_token"] == EOS


@run
async def test_a_stream_id_is_free_once_its_last_item_has_come() -> None:
    async with connected(tokens(11)) as client:
        for _ in range(20):
            await client.generate()
            assert (await client.stream())[-1]["token"] == 11


@run
async def test_a_waiting_stream_gets_a_queued_event() -> None:
    async with connected(silent) as client:
        for stream_id in range(6):
            await client.generate(stream_id)
        events = [await client.message() for _ in range(2)]
        assert [(event["event"], event["queued"], event["position"]) for event in events] == [
            ("queued", 4, 1),
            ("queued", 5, 2),
        ]


@run
async def test_cancel() -> None:
    async with connected(silent, tokens(11)) as client:
        await client.generate(1)
        await client.send("CANCEL", stream_id=1)
        assert await client.message() == {"stream_id": 1, "cancelled": True}
        [error] = await client.stream()
        assert (error["code"], error["retryable"]) == ("cancelled", False)
        assert client.engine.aborted == [1]
        await client.send("CANCEL", stream_id=1)
        assert await client.message() == {"stream_id": 1, "cancelled": False}
        await client.generate(1)
        assert (await client.stream())[-1]["finish_reason"] == "length"


@run
async def test_a_waiting_stream_can_be_cancelled() -> None:
    async with connected(silent) as client:
        await client.generate(1, prompt="a text that is tokenized elsewhere")
        await client.send("CANCEL", stream_id=1)
        [error] = await client.stream()
        assert error["code"] == "cancelled"


@run
async def test_streams_end_with_their_socket() -> None:
    async with connected(silent) as client:
        for stream_id in (1, 2, 3):
            await client.generate(stream_id)
        while len(client.engine.submitted) < 3:
            await asyncio.sleep(0)
        await client.socket.close()
        assert sorted(client.engine.aborted) == [1, 2, 3]


@run
async def test_a_dead_engine_ends_the_streams_and_events_report_the_new_engine() -> None:
    async with connected(silent) as client:
        await client.generate()
        while not client.engine.submitted:
            await asyncio.sleep(0)
        client.engine.client.lost(UnavailableError("the engine process has died"))
        [error] = await client.stream()
        assert (error["code"], error["retryable"]) == ("unavailable", True)
        await client.generate()
        assert (await client.stream())[-1]["retryable"] is True
        client.engine.client.connected(client.engine, client.engine.info)
        while (await client.message())["event"] != "ready":
            pass
        assert [item["event"] for command, [item] in client.frames if command == "MSG"] == [
            "ready",
            "unavailable",
            "ready",
        ]


@run
async def test_open_connections_hear_of_a_shutdown() -> None:
    async with connected(silent) as client:
        await client.generate(1)
        while not client.engine.submitted:
            await asyncio.sleep(0)
        client.service.admission.drain_begun.set()
        assert (await client.message())["event"] == "shutdown"
        await client.generate(2)
        [error] = await client.stream(2)
        assert error["retryable"] is True


@run
async def test_a_client_that_does_not_read_loses_its_streams_and_costs_little() -> None:
    async with connected(silent, capacity=64) as client:
        for stream_id in range(8):
            await client.generate(stream_id, max_tokens=2000)
        while len(client.engine.submitted) < 8:
            await asyncio.sleep(0)
        client.socket.reading.clear()
        top = [(token, -1.0) for token in range(20)]
        while len(client.engine.aborted) < 8:
            for submit in client.engine.submitted:
                client.engine.client.receive(wire.TokenOut(submit.stream, 8, b"x", "x", False, -1.0, top))
            await asyncio.sleep(0)
        # The server reads no further messages of the client, either.
        for _ in range(100):
            await client.send("MODEL_INFO", stream_id="late", model="it")
            await asyncio.sleep(0)
        client.socket.reading.set()
        ended = set()
        sent = 0
        while len(ended) < 8:
            _, items = await client.frame()
            assert len(json.dumps(items)) < 4 << 20, "clients take no more"
            sent += len(json.dumps(items))
            ended |= {item["stream_id"] for item in items if "error" in item}
        assert sent < 8 << 20
        assert (await client.message())["stream_id"] == "late"


@run
async def test_a_send_queue_keeps_the_order() -> None:
    queue, sent = SendQueue(), list[str]()
    for number in range(6):
        queue.put("MSG" if number in (2, 3) else "TOKEN", messages.CommandReply(stream_id=Raw(str(number).encode())))

    async def send(text: str) -> None:
        sent.append(text)
        if len(sent) == 3:
            raise EOFError

    with pytest.raises(EOFError):
        await queue.send_to(send)
    assert [(text.split()[0], [item["stream_id"] for item in json.loads(text.split(" ", 1)[1])]) for text in sent] == [
        ("TOKEN", [0, 1]),
        ("MSG", [2, 3]),
        ("TOKEN", [4, 5]),
    ]


@run
async def test_lmqls_client_gets_no_message_that_it_did_not_ask_for() -> None:
    engine = FakeEngine([tokens(11)])
    async with asyncio.timeout(30), Socket(create_app(service_over(engine)), "/lmtp") as socket:
        await socket.send(f"GENERATE {json.dumps(GENERATE)}")
        assert (await socket.receive()).startswith("TOKEN ")


@run
async def test_score_takes_the_fields_of_generate() -> None:
    async with connected(scores) as client:
        fields = {"temperature": 0.5, "max_tokens": 9, "top_logprobs": 5, "logit_bias": {"5": 1}, "length_penalty": 2}
        await client.send("SCORE", stream_id=1, model="it", prompt=[5], scored=[6004, 7], **fields)
        assert len(await client.stream()) == 2
        [submit] = client.engine.submitted
        assert (submit.sampling.max_tokens, submit.sampling.temperature, submit.sampling.logit_bias) == (0, 1.0, {})


@run
async def test_top_logprobs_to_100() -> None:
    async with connected() as client:
        await client.generate(top_logprobs=100)
        await client.stream()
        assert client.engine.submitted[0].sampling.logprobs == 100


def test_a_browser_gets_a_page() -> None:
    with TestClient(create_app(service_over(FakeEngine()))) as client:
        page = client.get("/")
        assert page.status_code == 200
        assert "Language Model Transport Protocol" in page.text
        assert client.get("/lmtp").status_code == 426


def test_the_document_names_every_field_and_code() -> None:
    document = (Path(messages.__file__).parent / "README.md").read_text()
    structs = [value for value in vars(messages).values() if isinstance(value, type) and issubclass(value, Struct)]
    fields = {field for struct in structs for field in struct.__struct_fields__}
    errors = (UsageError, NotFoundError, RuntimeDiedError, UnavailableError, TimedOutError, ForbiddenError)
    errors += (RateLimitError, ControllerError, CancelledStreamError, AiciError)
    codes = {error.code for error in errors}
    named = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]+)`", document.replace("```", "")))))
    assert fields | codes <= named
    table = document.partition("### GENERATE")[2].partition("### SCORE")[0]
    told = set(re.findall(r"`([a-z_]+)`", " ".join(re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE))))
    assert told == set(messages.Generate.__struct_fields__) - {"stream_id"}


def test_a_stream_that_never_begins_leaves_no_coroutine_behind() -> None:
    models = Models.of(service_over(FakeEngine()))
    connection = Connection(None, models, Principal(), is_greeted=False)  # type: ignore[arg-type]
    message = parse('GENERATE {"stream_id": 1, "model": "it", "prompt": [5], "max_tokens": 1}')
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        asyncio.run(connection._prepare(message)).close()  # type: ignore[arg-type]
        gc.collect()
    assert not seen
