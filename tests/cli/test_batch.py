"""`aici batch` as a user runs the command, over a server whose engine plays scripts."""

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from aici_base.errors import NotFoundError, UsageError
from aici_cli.batch import batch
from aici_engine.server.link import wire
from tests.support.batch_lines import chat_line, jsonl, results
from tests.support.cli import AICI, aici
from tests.support.fake_engine import says, silent
from tests.support.fake_service import vocabulary
from tests.support.http import listening
from tests.support.openai_api import Api

_PATIENCE_S = 240.0


def _over(api: Api, test: Callable[[list[str]], Awaitable[None]]) -> None:
    """Run a test with the arguments that name a server over `api`."""

    async def main() -> None:
        async with listening(api.app) as port, asyncio.timeout(_PATIENCE_S):
            await test(["--server", f"http://127.0.0.1:{port}"])

    asyncio.run(main())


async def _begin(*args: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(*AICI, "batch", *args, stdout=-1, stderr=-1)


async def _run(*args: str, stdin: bytes | None = None) -> tuple[int, bytes, str]:
    """Return the exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(*AICI, "batch", *args, stdin=-1, stdout=-1, stderr=-1)
    out, said = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, out, said.decode()


def test_answers_and_errors_are_lines(tmp_path: Path) -> None:
    given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_bytes(jsonl(chat_line("a"), chat_line("b", max_tokens=0), chat_line("c")))

    async def test(server: list[str]) -> None:
        code, shown, said = await _run(str(given), "-o", str(out), *server)
        assert (code, shown) == (1, b"")
        assert said == "3 requests: 2 answered, 1 errors\n"
        found = results(out.read_bytes())
        assert {each: found[each]["response"]["status_code"] for each in found} == {"a": 200, "b": 400, "c": 200}
        assert found["a"]["response"]["body"]["choices"][0]["message"]["content"] == "Hello there"
        assert found["b"]["response"]["body"]["error"]["param"] == "max_tokens"
        before = out.read_bytes()
        assert (await _run(str(given), "-o", str(out), *server))[0] == 1  # nothing is asked again
        assert out.read_bytes() == before
        assert (await _run(str(given), "-o", str(out), "--retry-errors", *server))[0] == 1  # only b is asked again
        again = out.read_bytes().splitlines()
        assert again[:2] == [line for line in before.splitlines() if b'"status_code":200' in line]
        assert results(out.read_bytes()).keys() == {"a", "b", "c"}

    api = Api(says("Hello", " there"))
    _over(api, test)
    assert len(api.engine.submitted) == 2


def test_stdin_and_stdout() -> None:
    async def test(server: list[str]) -> None:
        code, shown, said = await _run("-", "-o", "-", *server, stdin=jsonl(*map(chat_line, "ab")))
        assert (code, said) == (0, "2 requests: 2 answered, 0 errors\n")
        assert results(shown).keys() == {"a", "b"}

    _over(Api(says("Hello")), test)


def test_every_line_once_after_kills(tmp_path: Path) -> None:
    """In each life of the command, the engine answers ten lines more than before, and is silent to the rest."""
    given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_bytes(jsonl(*(chat_line(f"r{number}", f"<{number}>") for number in range(40))))
    num_answered = 0

    def script(submit: wire.Submit) -> Iterable[wire.StreamOut]:
        number = re.search(r"<([0-9]+)>", vocabulary().decode(submit.prompt))
        assert number is not None
        return (says("Hello") if int(number[1]) < num_answered else silent)(submit)

    async def test(server: list[str]) -> None:
        nonlocal num_answered
        args = (str(given), "-o", str(out), "--concurrency", "4", *server)
        for num_answered in (10, 20, 30):
            process = await _begin(*args)
            while not out.exists() or out.read_bytes().count(b"\n") < num_answered:
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            await process.communicate()
        with out.open("ab") as file:
            file.write(b'{"id":"batch_req_torn","custom_id":"r3')
        num_answered = 40
        assert (await _run(*args))[0] == 0
        assert results(out.read_bytes()).keys() == {f"r{number}" for number in range(40)}

    _over(Api(script), test)


def test_ctrl_c_keeps_the_results(tmp_path: Path) -> None:
    given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_bytes(jsonl(*map(chat_line, "ab")))

    async def test(server: list[str]) -> None:
        process = await _begin(str(given), "-o", str(out), "--concurrency", "1", *server)
        while not out.exists() or b"\n" not in out.read_bytes():
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
        assert process.returncode == -signal.SIGINT
        assert said.decode() == "1 of 2 requests have results: the same command goes on with the rest\n"
        assert len(results(out.read_bytes())) == 1

    _over(Api(says("Hello"), silent), test)


def test_a_key_that_is_not_known_ends_the_run(tmp_path: Path) -> None:
    from aici_engine.server.api.app import create_app
    from aici_engine.server.gateway.api_keys import Keys

    given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_bytes(jsonl(*map(chat_line, "ab")))
    file = tmp_path / "keys.toml"
    file.write_text('[keys.alice]\nkey = "sk-alice"\n')
    file.chmod(0o600)
    api = Api(says("Hello"))
    api.app = create_app(api.service, keys=Keys(file))

    async def test(server: list[str]) -> None:
        code, _, said = await _run(str(given), "-o", str(out), *server)
        assert code == 1
        assert "error: no API key" in said
        assert out.read_bytes() == b""
        assert (await _run(str(given), "-o", str(out), server[0], f"{server[1]}#key=sk-alice"))[0] == 0

    _over(api, test)


def _batch(given: Path, out: Path, **flags: Any) -> None:
    batch(given, output=out, **{"alias": None, "model": None, "server": "http://127.0.0.1:9", **flags})


def test_wrong_uses(tmp_path: Path) -> None:
    given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_bytes(jsonl(chat_line("a")))
    with pytest.raises(UsageError, match="is the file of the requests"):
        _batch(given, given)
    with pytest.raises(UsageError, match="--model is not for --server"):
        _batch(given, out, model="m")
    with pytest.raises(UsageError, match="--threads is not for --server"):
        _batch(given, out, threads=1)
    with pytest.raises(NotFoundError, match="cannot be read"):
        _batch(tmp_path / "none", out)
    assert not out.exists()
    other = b'{"id":"batch_req_1","custom_id":"b","response":null,"error":{"code":"x","message":""}}\n'
    out.write_bytes(other)
    for again in (False, True):
        with pytest.raises(UsageError, match="has results of other requests, such as 'b'"):
            _batch(given, out, retry_errors=again)
    assert out.read_bytes() == other


def test_no_server(tmp_path: Path) -> None:
    given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_bytes(jsonl(chat_line("a")))
    done = aici("batch", str(given), "-o", str(out), "--server", "http://127.0.0.1:9")
    assert done.returncode == 3
    assert "cannot be reached" in done.stderr
    assert "0 of 1 requests have results" in done.stderr
