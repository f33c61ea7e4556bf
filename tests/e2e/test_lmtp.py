"""LMTP over a real WebSocket with the default model: the LMQL client, `aici lmtp`, and misbehaving clients."""

import asyncio
import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from aici_base.ids import TokenId
from aici_engine.config import SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import ScoreEvent
from aici_engine.request import Request
from aici_engine.server.api.app import create_app
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.protocols import lmtp
from aici_engine.vocabulary import ModelVocabulary
from tests.support.cli import AICI, aici
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over
from tests.support.http import listening
from tests.support.lmtp import run, scores
from tests.support.model import default_model_dir
from tests.support.processes import wait_until
from tests.support.server import Server, serving

pytestmark = pytest.mark.e2e

VOCABULARY = ModelVocabulary(default_model_dir())


def greedy(engine: Engine, prompt: list[int], max_tokens: int) -> list[int]:
    """Return the tokens of the engine without a server."""
    sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens)
    end = engine.submit(Request(prompt=[TokenId(token) for token in prompt], sampling=sampling)).wait()
    return [token.token_id for token in end.tokens]


@asynccontextmanager
async def socket_to(server: Server) -> AsyncIterator[ClientConnection]:
    """Yield a socket after the server's greeting."""
    url = server.url.replace("http", "ws") + "/lmtp?greeting=1"
    async with asyncio.timeout(60), connect(url, max_size=4 << 20) as socket:
        assert '"ready"' in str(await socket.recv())
        yield socket


async def say(socket: ClientConnection, command: str, **fields: object) -> None:
    await socket.send(f"{command} {json.dumps({'stream_id': 1, 'model': 'default'} | fields)}")


async def stream(socket: ClientConnection, stream_id: object = 1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while not found or not ("error" in found[-1] or found[-1].get("finish_reason")):
        command, _, body = str(await socket.recv()).partition(" ")
        found += [item for item in json.loads(body) if command == "TOKEN" and item["stream_id"] == stream_id]
    return found


def is_idle(server: Server) -> bool:
    stats = server.stats()
    return stats["active_requests"] == stats["waiting_requests"] == 0 and stats["cache_usage"] == 0.0


@pytest.mark.timeout(240)  # on an idle machine the server needs little of the time
def test_lmql(server: Server, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text('[keys.it]\nkey = "right"\n')
    (tmp_path / "keys.toml").chmod(0o600)

    async def queries() -> dict[str, Any]:
        guarded = create_app(service_over(FakeEngine([scores])), keys=Keys(tmp_path / "keys.toml"))
        async with listening(guarded) as port:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(Path(__file__).parent / "lmql_queries.py"),
                server.url.removeprefix("http://"),
                str(default_model_dir()),
                f"127.0.0.1:{port}",
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # LMQL keeps tokenizers in the home folder.
                env=os.environ | {"HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"},
            )
            try:
                out, err = await asyncio.wait_for(process.communicate(), 200)
            finally:
                if process.returncode is None:
                    process.kill()
            assert process.returncode == 0, err.decode()
            results: dict[str, Any] = json.loads(out)
            return results

    said = asyncio.run(queries())
    assert isinstance(said["number"], int)
    assert said["choice"] in (" green", " blue", " a very dark grey")
    bos, fruit = [1], VOCABULARY.encode("A list of fruit: apples, pears,")
    wanted, comma, _ = VOCABULARY.decode(greedy(engine, bos + fruit, 20)).partition(",")
    assert said["stops_at"] == wanted + comma
    assert said["dense"]
    assert "a" not in said["dense"]
    assert len(said["sampled"]) == len(said["beam"]) == 2
    assert said["to_the_end"] == "The capital of France is Paris."
    assert said["longer_than_it_wants"].startswith("The capital of France is Paris.")
    assert 12 <= len(VOCABULARY.encode(said["longer_than_it_wants"])) <= 13
    assert said["scores"] == [
        pytest.approx(scores_of(engine, "The capital of France is", text), abs=1e-3) for text in (" Paris", " banana")
    ]
    # Traced queries ask for MODEL_INFO.
    assert '"server": "aici"' in said["certificate"]
    assert "gpt2 is not served here" in said["other_model"]
    assert "401" in said["no_key"]
    assert "401" in said["wrong_key"]
    assert said["key"] == said["password"] == ""


def scores_of(engine: Engine, prompt: str, text: str) -> list[float | None]:
    start = [1, *VOCABULARY.encode(prompt)]
    tokens = [TokenId(token) for token in start + VOCABULARY.encode(text)]
    request = Request(prompt=tokens, sampling=SamplingParams(max_tokens=0), score_from=len(start))
    [event] = [event for event in engine.submit(request).events() if isinstance(event, ScoreEvent)]
    return [score.logprob for score in event.scores]


@run
async def _text_is_the_engines(server: Server, wanted: list[int]) -> None:
    async with socket_to(server) as socket:
        await say(socket, "GENERATE", prompt="The capital of France is", max_tokens=12)
        items = await stream(socket)
        assert [item["token"] for item in items] == wanted
        assert "".join(item["text"] for item in items) == VOCABULARY.decode(wanted)
        assert [item["finish_reason"] for item in items] == [None] * 11 + ["length"]
        # Go on from a part of the text that the connection keeps: the same tokens.
        await say(socket, "GENERATE", prompt="The capital of France is", max_tokens=4, buffer="it")
        await stream(socket)
        await say(socket, "GENERATE", prompt=[{"buffer": "it"}], max_tokens=8)
        assert [item["token"] for item in await stream(socket)] == wanted[4:]
        # The score of a generated text is the likelihood of the generation.
        await say(socket, "SCORE", prompt="The capital of France is", scored=wanted)
        for item, score in zip(items, await stream(socket), strict=True):
            assert score["logprob"] == pytest.approx(item["logprob"], abs=1e-3)
            assert "top_logprobs" not in score
        await say(socket, "SCORE", prompt=[], scored=wanted)
        assert (await stream(socket))[0]["logprob"] == 0.0


def test_text_buffers_and_scores_are_the_engines(server: Server, engine: Engine) -> None:
    _text_is_the_engines(server, greedy(engine, VOCABULARY.encode("The capital of France is"), 12))


@run
async def test_a_bias_forces_and_forbids(server: Server) -> None:
    async with socket_to(server) as socket:
        digits = {str(token): 100 for token in VOCABULARY.encode("0123456789")}
        await say(socket, "GENERATE", prompt="One plus one is", max_tokens=3, logit_bias=digits, top_logprobs=10)
        items = await stream(socket)
        for item in items:
            assert str(item["token"]) in digits
            assert set(item["top_logprobs"]) == set(digits)
            assert sum(2.718281828**logprob for logprob in item["top_logprobs"].values()) == pytest.approx(1, abs=1e-4)
        # Forbid all tokens but 33: as large a message as LMQL sends for this vocabulary.
        forbidden = {str(token): -100 for token in range(49252) if token != 33}
        await say(socket, "GENERATE", prompt="One plus one is", max_tokens=2, logit_bias=forbidden)
        assert [item["token"] for item in await stream(socket)] == [33, 33]


@run
async def test_the_example_of_the_document(server: Server) -> None:
    document = (Path(lmtp.__file__).parent / "README.md").read_text()
    lines = re.search(r"^```\n(> GENERATE .*?)^```", document, re.MULTILINE | re.DOTALL)
    assert lines is not None
    asked, *answers = lines[1].splitlines()
    async with socket_to(server) as socket:
        await socket.send(asked.removeprefix("> "))
        said = await stream(socket)
    shown = [item for answer in answers for item in json.loads(answer.removeprefix("< TOKEN "))]
    for item, wanted in zip(said, shown, strict=True):
        assert item | {"logprob": 0, "top_logprobs": 0} == wanted | {"logprob": 0, "top_logprobs": 0}
        # The document's figures are for f32 weights; the model here has 4-bit weights.
        assert item["logprob"] == pytest.approx(wanted["logprob"], abs=0.15)
        assert item["top_logprobs"] == pytest.approx(wanted["top_logprobs"], abs=0.15)


@run
async def test_constraints(server: Server) -> None:
    async with socket_to(server) as socket:
        for asked, wanted in (
            ({"guided_regex": r"\d\d"}, r"\d\d"),
            ({"guided_choice": ["yes", "no"]}, "yes|no"),
            ({"guided_json": {"const": [1, "a"]}}, r'\[1, ?"a"\]'),
            ({"controller": "regex", "controller_arg": "[a-c]{3}"}, "[a-c]{3}"),
        ):
            await say(socket, "GENERATE", prompt="The answer: ", max_tokens=20, **asked)
            *items, last = await stream(socket)
            assert re.fullmatch(wanted, "".join(item["text"] for item in items))
            assert (last["token"], last["finish_reason"]) == (2, "stop")
            assert last["logprob"] <= 0.0
        await say(socket, "GENERATE", prompt="The answer: ", max_tokens=3, guided_regex="a{50}")
        assert len("".join(item["text"] for item in await stream(socket))) >= 3


@run
async def test_a_broken_connection_ends_its_streams(server: Server) -> None:
    async with socket_to(server) as socket:
        for stream_id in range(16):
            await say(socket, "GENERATE", stream_id=stream_id, prompt="Once upon a time", max_tokens=2000)
        await socket.recv()
        socket.transport.abort()
    assert await asyncio.to_thread(wait_until, lambda: is_idle(server), 30)


@run
async def test_sizes(server: Server) -> None:
    """Large messages are read; a message above 8 MiB ends the sender's connection, and no other connection."""
    async with socket_to(server) as bystander:
        await say(bystander, "GENERATE", prompt="Once upon a time", max_tokens=64)
        async with socket_to(server) as socket:
            await socket.send("GENERATE " + json.dumps({"stream_id": 1, "model": "x" * (6 << 20)})[:-9])
            assert "truncated" in str(await socket.recv())
            await say(socket, "GENERATE", prompt=[5] * 8192)
            assert "8192" in (await stream(socket))[0]["error"]
            with contextlib.suppress(ConnectionClosed):
                await socket.send("GENERATE " + "x" * (8 << 20))
            await socket.wait_closed()
            assert socket.close_code in (1006, 1009)
        assert (await stream(bystander))[-1]["finish_reason"]


def test_a_server_that_stops_tells_its_streams_before_it_closes() -> None:
    @run
    async def talk() -> None:
        async with socket_to(server) as socket:
            await say(socket, "GENERATE", prompt="Once upon a time", max_tokens=8000)
            await socket.recv()
            server.process.terminate()
            last = (await stream(socket))[-1]
            assert (last["code"], last["retryable"]) == ("unavailable", True)
            await socket.wait_closed()
            assert socket.close_code == 1012

    with serving("--drain-timeout", "0.1") as server:
        talk()


def test_the_command_in_a_script(server: Server) -> None:
    said = aici("lmtp", server.url, stdin="The capital of France is max_tokens=3\n\nOne, two, max_tokens=2 top_k=1\n")
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("The capital of France is Paris")
    assert len(said.stderr.splitlines()) == 5
    said = aici("lmtp", server.url.removeprefix("http://"), "--json", stdin="The capital of France is max_tokens=3")
    assert [json.loads(line)["finish_reason"] for line in said.stdout.splitlines()] == [None, None, "length"]
    said = aici("lmtp", server.url, stdin="Hello do_sample=true\nHello")
    assert (said.returncode, said.stdout) == (1, "")
    assert "do_sample" in said.stderr


def test_the_command_at_a_terminal(server: Server) -> None:
    """Ctrl-C cancels a stream, Ctrl-D leaves."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*AICI, "lmtp", server.url])
    try:
        until(terminal, b">>>> ")
        os.write(terminal, b"Once upon a time max_tokens=4000\n")
        until(terminal, b'"token"')
        os.write(terminal, b"\x03")
        shown = until(terminal, b">>>> ")
        assert b'"cancelled"' in shown
        assert b"\r\nOnce upon a time" in shown
        os.write(terminal, b"Hello max_tokens=0\n")
        assert b"max_tokens" in until(terminal, b">>>> ")
        os.write(terminal, b"\x04")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    except BaseException:
        os.kill(pid, 9)
        raise
    finally:
        os.close(terminal)
    assert wait_until(lambda: is_idle(server), 30)


def until(terminal: int, wanted: bytes) -> bytes:
    """Return the output of a terminal up to `wanted`."""
    shown = b""
    deadline = time.monotonic() + 60
    while wanted not in shown:
        assert wait([terminal], max(0.0, deadline - time.monotonic())), shown
        shown += os.read(terminal, 1 << 16)
    return shown
