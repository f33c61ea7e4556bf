"""Files and batches by the official client, over an engine that plays scripts."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import openai
import pytest

from aici_base.errors import UnavailableError
from aici_engine.config import BACKGROUND_PRIORITY
from aici_engine.server.api.app import create_app
from aici_engine.server.batches.runner import BatchRunner
from aici_engine.server.config import KeptFilesLimits
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.link import wire
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.batch_store import BatchStore, KeptBatch
from aici_engine.server.service.models import Models
from tests.support.admission import pass_through
from tests.support.batch_lines import Json, chat_line, jsonl, results
from tests.support.fake_engine import Script, says, silent
from tests.support.fake_service import fake_service, vocabulary
from tests.support.http import listening

_CHAT: Any = "/v1/chat/completions"
_PATIENCE_S = 240.0
_KEYS = '[keys.alice]\nkey = "sk-alice"\n[keys.bob]\nkey = "sk-bob"\nmax_concurrency = 1\ncontrollers = ["regex"]\n'


def numbered(count: int, *, answered: Callable[[], int] = lambda: 1 << 30) -> tuple[list[Json], Script]:
    """Return lines, and a script that answers the line N while N is below `answered()`, and is silent otherwise."""

    def script(submit: wire.Submit) -> Iterable[wire.StreamOut]:
        number = re.search(r"<([0-9]+)>", vocabulary().decode(submit.prompt))
        assert number is not None
        return (says(number[1]) if int(number[1]) < answered() else silent)(submit)

    return [chat_line(f"r{number}", f"<{number}>") for number in range(count)], script


class Site:
    """A server over scripts. `serving` starts a life of the server; the store is in `path`."""

    def __init__(self, *scripts: Script, path: Path | None = None, keys: Path | None = None, **store: Any) -> None:
        self.service, self.engine = fake_service(*scripts)
        self._path, self._keys, self._store = path, Keys(keys), store

    @contextlib.asynccontextmanager
    async def serving(self, key: str = "none") -> AsyncIterator[openai.AsyncOpenAI]:
        with BatchStore(self._path, **self._store) as store:
            app = create_app(self.service, keys=self._keys, batches=store)
            async with (
                asyncio.timeout(_PATIENCE_S),
                listening(app) as port,
                openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0) as client,
                BatchRunner(app, Models.of(self.service), store, self._keys.principal_named),
            ):
                yield client


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


async def begin(client: openai.AsyncOpenAI, *lines: Json, endpoint: Any = _CHAT, **more: Any) -> str:
    file = await client.files.create(file=("in.jsonl", jsonl(*lines)), purpose="batch")
    made = await client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **more)
    assert made.status == "validating"
    return made.id


async def until(client: openai.AsyncOpenAI, batch_id: str, *statuses: str) -> openai.types.Batch:
    while (batch := await client.batches.retrieve(batch_id)).status not in statuses:
        await asyncio.sleep(0.02)
    return batch


async def content(client: openai.AsyncOpenAI, file_id: str | None) -> dict[str, Json]:
    assert file_id is not None
    return results((await client.files.content(file_id)).content)


def test_a_batch_from_its_file_to_its_results() -> None:
    lines, script = numbered(20)
    lines.insert(3, chat_line("wrong", temperature=-1))
    lines.insert(5, chat_line("streamed", stream=True))

    async def test() -> None:
        async with Site(script).serving() as client:
            done = await until(client, await begin(client, *lines, metadata={"a": "b"}), "completed")
            assert done.request_counts is not None
            assert done.request_counts.model_dump() == {"total": 22, "completed": 20, "failed": 2}
            assert done.metadata == {"a": "b"}
            assert done.usage is not None
            used = [each["response"]["body"]["usage"] for each in (await content(client, done.output_file_id)).values()]
            assert done.usage.input_tokens == sum(each["prompt_tokens"] for each in used) > 0
            assert done.usage.output_tokens == sum(each["completion_tokens"] for each in used) > 0
            assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens
            assert None not in (done.in_progress_at, done.finalizing_at, done.completed_at, done.expires_at)
            found = await content(client, done.output_file_id)
            assert list(found) == [f"r{number}" for number in range(20)]  # in the order of the lines
            for number in range(20):
                response = found[f"r{number}"]["response"]
                assert response["status_code"] == 200
                assert openai.types.chat.ChatCompletion(**response["body"]).choices[0].message.content == str(number)
            errors = await content(client, done.error_file_id)
            assert {each: errors[each]["response"]["status_code"] for each in errors} == {"wrong": 400, "streamed": 400}
            assert errors["wrong"]["response"]["body"]["error"]["param"] == "temperature"

    run(test)


def test_lines_run_in_the_background_and_take_no_place_in_the_queue() -> None:
    lines, script = numbered(9, answered=lambda: 0)
    site = Site(script)

    async def test() -> None:
        async with site.serving() as client:
            batch_id = await begin(client, *lines)
            while len(site.engine.submitted) < site.service.info.max_num_seqs:
                await asyncio.sleep(0.01)
            assert min(each.priority for each in site.engine.submitted) >= BACKGROUND_PRIORITY
            await pass_through(site.service.admission, Principal(), site.service.admission.capacity)
            await client.batches.cancel(batch_id)
            done = await until(client, batch_id, "cancelled")
            assert len(site.engine.submitted) == site.service.info.max_num_seqs
            assert sorted(site.engine.aborted) == sorted(each.stream for each in site.engine.submitted)
            errors = await content(client, done.error_file_id)
            assert {each["error"]["code"] for each in errors.values()} == {"batch_cancelled"}
            assert len(errors) == 9
            assert done.output_file_id is None
            with pytest.raises(openai.ConflictError):
                await client.batches.cancel(batch_id)

    run(test)


def test_a_batch_goes_on_after_restarts(tmp_path: Path) -> None:
    limit = 0
    lines, script = numbered(30, answered=lambda: limit)
    site = Site(script, path=tmp_path / "batches.db")

    async def test() -> None:
        nonlocal limit
        batch_id = ""
        for limit in (7, 15, 22):
            async with site.serving() as client:
                batch_id = batch_id or await begin(client, *lines)
                while True:
                    counts = (await client.batches.retrieve(batch_id)).request_counts
                    if counts is not None and counts.completed == limit:
                        break
                    await asyncio.sleep(0.02)
        limit = 30
        async with site.serving() as client:
            done = await until(client, batch_id, "completed")
            assert list(await content(client, done.output_file_id)) == [f"r{number}" for number in range(30)]
            assert done.request_counts is not None
            assert done.request_counts.completed == 30
            assert done.error_file_id is None

    run(test)


def test_one_runner_a_file(tmp_path: Path) -> None:
    lines, script = numbered(5)
    sites = [Site(script, path=tmp_path / "batches.db") for _ in range(2)]

    async def test() -> None:
        async with contextlib.AsyncExitStack() as first:
            await first.enter_async_context(sites[0].serving())
            async with sites[1].serving() as client:
                await asyncio.sleep(0)
                one = await until(client, await begin(client, *lines), "completed")
                assert len(sites[0].engine.submitted) + len(sites[1].engine.submitted) == 5
                await first.aclose()
                await until(client, await begin(client, *lines), "completed")  # the second takes over
                assert len(await content(client, one.output_file_id)) == 5
                assert len(sites[1].engine.submitted) >= 5

    run(test)


@pytest.mark.parametrize(
    ("lines", "code", "number"),
    [
        ([{"custom_id": "a"}], "missing_required_parameter", 1),
        ([chat_line("a"), chat_line("b"), chat_line("a")], "duplicate_custom_id", 3),
        ([chat_line("a"), {**chat_line("b"), "url": "/v1/completions"}], "invalid_url", 2),
        ([chat_line(str(number)) for number in range(6)], "too_many_lines", None),
    ],
)
def test_a_wrong_file_fails_before_anything_runs(lines: list[Json], code: str, number: int | None) -> None:
    site = Site(says("no"), limits=KeptFilesLimits(max_lines=5))

    async def test() -> None:
        async with site.serving() as client:
            failed = await until(client, await begin(client, *lines), "failed")
            assert failed.errors is not None
            assert [(each.code, each.line) for each in failed.errors.data or ()] == [(code, number)]
            assert failed.failed_at
            assert (failed.output_file_id, failed.error_file_id) == (None, None)

    run(test)
    assert not site.engine.submitted


def test_a_batch_that_is_too_late_keeps_its_results() -> None:
    lines, script = numbered(6, answered=lambda: 4)
    late = 0.0
    clock = {"late": late}

    async def test() -> None:
        import time

        site = Site(script, clock=lambda: time.time() + clock["late"])
        async with site.serving() as client:
            batch_id = await begin(client, *lines)
            while len(site.engine.submitted) < 6:
                await asyncio.sleep(0.02)
            while ((await client.batches.retrieve(batch_id)).request_counts or _NONE).completed < 4:
                await asyncio.sleep(0.02)
            clock["late"] = 86400.0
            done = await until(client, batch_id, "expired")
            assert len(await content(client, done.output_file_id)) == 4
            errors = await content(client, done.error_file_id)
            assert {each: errors[each]["error"]["code"] for each in errors} == dict.fromkeys(
                ("r4", "r5"), "batch_expired"
            )

    run(test)


_NONE = openai.types.BatchRequestCounts(completed=0, failed=0, total=0)


def test_results_that_do_not_fit_end_the_batch() -> None:
    lines, script = numbered(9)
    size = len(jsonl(*lines))

    async def test() -> None:
        async with Site(script, limits=KeptFilesLimits(max_owner_bytes=size + 1500)).serving() as client:
            failed = await until(client, await begin(client, *lines), "failed")
            assert failed.errors is not None
            assert [each.code for each in failed.errors.data or ()] == ["storage_full"]
            kept = len(await content(client, failed.output_file_id)) if failed.output_file_id else 0
            assert kept + len(await content(client, failed.error_file_id)) == 9

    run(test)


def test_lines_have_the_rights_of_the_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(_KEYS)
    file.chmod(0o600)
    lines = [chat_line("a"), chat_line("b", controller="json_schema", controller_arg={})]

    async def test() -> None:
        async with Site(says("yes"), keys=file).serving("sk-bob") as bob:
            batch_id = await begin(bob, *lines)
            done = await until(bob, batch_id, "completed")
            assert list(await content(bob, done.output_file_id)) == ["a"]
            errors = await content(bob, done.error_file_id)
            assert errors["b"]["response"]["status_code"] == 403
            alice = bob.with_options(api_key="sk-alice")
            assert (await alice.files.list()).data == []
            assert (await alice.batches.list()).data == []
            for refused in (
                alice.files.retrieve(done.input_file_id),
                alice.files.content(done.output_file_id or ""),
                alice.files.delete(done.input_file_id),
                alice.batches.retrieve(batch_id),
                alice.batches.cancel(batch_id),
                alice.batches.create(input_file_id=done.input_file_id, endpoint=_CHAT, completion_window="24h"),
            ):
                with pytest.raises(openai.NotFoundError):
                    await refused

    run(test)


def test_files_by_the_client() -> None:
    async def test() -> None:
        async with Site().serving() as client:
            files = [await client.files.create(file=(f"{i}.jsonl", b"x" * i), purpose="batch") for i in (1, 2, 3)]
            assert [(each.bytes, each.filename) for each in files] == [(1, "1.jsonl"), (2, "2.jsonl"), (3, "3.jsonl")]
            assert [each.id async for each in client.files.list(limit=2)] == [each.id for each in files][::-1]
            assert await client.files.retrieve(files[0].id) == files[0]
            assert (await client.files.content(files[2].id)).content == b"xxx"
            short = await client.files.create(
                file=b"short", purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
            )
            assert (short.expires_at or 0) - short.created_at == 3600
            assert (await client.files.delete(short.id)).deleted
            with pytest.raises(openai.NotFoundError):
                await client.files.retrieve(short.id)
            for wrong in (
                client.files.create(file=b"x", purpose="fine-tune"),
                client.files.create(file=b"", purpose="batch"),
                client.files.create(file=b"x", purpose="batch", extra_body={"more": "1"}),
                client.files.create(file=b"x", purpose="batch", expires_after={"anchor": "created_at", "seconds": 1}),
                client.batches.create(input_file_id=files[0].id, endpoint="/v1/moderations", completion_window="24h"),
                client.batches.create(input_file_id=files[0].id, endpoint=_CHAT, completion_window="1h"),  # type: ignore[arg-type]
                client.batches.create(
                    input_file_id=files[0].id, endpoint=_CHAT, completion_window="24h", metadata={"a": "b" * 513}
                ),
            ):
                with pytest.raises(openai.BadRequestError):
                    await wrong

    run(test)


def test_lists_of_batches_have_pages() -> None:
    async def test() -> None:
        async with Site(says("Hello")).serving() as client:
            ids = [await begin(client, chat_line("a")) for _ in range(3)]
            assert [each.id async for each in client.batches.list(limit=2)] == ids[::-1]
            for batch_id in ids:
                await until(client, batch_id, "completed")

    run(test)


def test_a_batch_of_a_key_that_is_gone_ends(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(_KEYS)
    file.chmod(0o600)
    site = Site(says("yes"), keys=file)

    async def test() -> None:
        with BatchStore() as store:
            kept = store.add_file("carol", filename="a", purpose="batch", content=jsonl(chat_line("a")))
            body = {"endpoint": _CHAT, "completion_window": "24h", "metadata": None}
            batch = store.add_batch("carol", kept.file_id, body, output_ttl_s=None)
            app = create_app(site.service, batches=store)
            async with asyncio.timeout(_PATIENCE_S), BatchRunner(app, Models.of(site.service), store, lambda _: None):
                while (done := store.batch("carol", batch.batch_id)).status != "failed":
                    await asyncio.sleep(0.02)
            assert done.body["errors"]["data"][0]["code"] == "key_removed"
            piece = store.chunk(done.body["error_file_id"], 0)
            assert piece is not None
            assert json.loads(piece)["error"]["code"] == "batch_failed"

    run(test)
    assert not site.engine.submitted


def test_a_store_that_fails_for_a_while_only_delays(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(BatchStore):
        num_failures = 2

        def unfinished(self) -> list[KeptBatch]:
            self.num_failures -= 1
            if self.num_failures >= 0:
                raise UnavailableError("the disk is away")
            return super().unfinished()

    lines, script = numbered(2)
    site = Site(script)

    async def test() -> None:
        with Failing() as store:
            kept = store.add_file("localhost", filename="a", purpose="batch", content=jsonl(*lines))
            body = {"endpoint": _CHAT, "completion_window": "24h", "metadata": None}
            batch = store.add_batch("localhost", kept.file_id, body, output_ttl_s=None)
            app = create_app(site.service, batches=store)
            runner = BatchRunner(app, Models.of(site.service), store, lambda _: Principal())
            async with asyncio.timeout(_PATIENCE_S), runner:
                while store.batch("localhost", batch.batch_id).status != "completed":
                    store.watch()
                    await asyncio.sleep(0.02)

    run(test)
    assert "batches wait: the disk is away" in caplog.text
