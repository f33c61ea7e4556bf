"""Runs the batches of a store: one batch of each owner at a time, oldest first, when there is nothing else to compute.

A killed runner leaves nothing behind but the store. The next runner goes on with the lines without a result.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self

from starlette.types import ASGIApp

from aici_base.errors import AiciError, QuotaError
from aici_engine.server.batches.answering import answer_all, answer_line, in_threads
from aici_engine.server.batches.in_process import InProcess, engine_up
from aici_engine.server.batches.line import Line, failure, read_line, result
from aici_engine.server.batches.usage import usage_of
from aici_engine.server.batches.validation import check_lines
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.batch_store import BatchStore, KeptBatch, Result, Status
from aici_engine.server.service.models import Models

_LOOK_AGAIN_S: Final = 2.0
"""Another API process may share the store: its new batches and cancellations are found within this time."""

_log = logging.getLogger(__name__)


class BatchRunner:
    """Runs the batches of `store` by the application `app`. A context manager; leaving it stops in the middle of lines.

    `principal_of`: the Principal of a batch's owner; None if the owner is gone. Of several runners over one file, one
    runs the batches, and the other runners wait for its end.
    """

    def __init__(
        self, app: ASGIApp, models: Models, store: BatchStore, principal_of: Callable[[str], Principal | None]
    ) -> None:
        self._app = app
        self._models = models
        self._store = store
        self._principal_of = principal_of
        self._changed = asyncio.Event()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._lock: int | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()

        def watch() -> None:
            loop.call_soon_threadsafe(self._changed.set)

        self._store.watch = watch
        self._main = loop.create_task(self._run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._store.watch = lambda: None
        tasks = [self._main, *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._lock is not None:
            os.close(self._lock)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._begin_batches()
            except (AiciError, OSError) as error:
                _log.error("batches wait: %s", error)
            # Not `wait_for`: a cancellation that meets the event would be lost, and the server would never end.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    await self._changed.wait()

    async def _begin_batches(self) -> None:
        if self._is_only_runner():
            for batch in await asyncio.to_thread(self._oldest_by_owner):
                if batch.owner not in self._running:
                    self._running[batch.owner] = asyncio.create_task(self._keep_running(batch))

    def _is_only_runner(self) -> bool:
        if self._store.path is None or self._lock is not None:
            return True
        lock = os.open(f"{self._store.path}.runner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def _oldest_by_owner(self) -> list[KeptBatch]:
        oldest: dict[str, KeptBatch] = {}
        for batch in self._store.unfinished():
            oldest.setdefault(batch.owner, batch)
        return list(oldest.values())

    async def _keep_running(self, batch: KeptBatch) -> None:
        try:
            await self._run_batch(batch)
        except AiciError as error:
            _log.error("%s is interrupted: %s", batch.batch_id, error)
            await asyncio.sleep(_LOOK_AGAIN_S)
        except Exception:
            _log.exception("%s is interrupted: a bug in aici", batch.batch_id)
            raise  # the owner's batches stay where they are, until a new server
        self._running.pop(batch.owner)
        self._changed.set()

    async def _run_batch(self, batch: KeptBatch) -> None:
        if batch.status == "validating":
            batch = await asyncio.to_thread(self._validated, batch)
        if batch.status == "in_progress":
            await self._answer(batch)
        await asyncio.to_thread(self._end, batch)

    def _validated(self, batch: KeptBatch) -> KeptBatch:
        endpoint, max_lines = batch.body["endpoint"], self._store.limits.max_lines
        num_lines, wrong = check_lines(
            self._store.lines(batch.input_file), endpoint, max_lines, self._models.limits.max_body_bytes
        )
        if wrong:
            fields = {"errors": {"object": "list", "data": wrong}, "failed_at": self._now()}
            return self._store.advance(batch, "finalizing", {**fields, "ends_as": "failed"})
        return self._store.advance(batch, "in_progress", {"in_progress_at": self._now(), "num_lines": num_lines})

    async def _answer(self, batch: KeptBatch) -> None:
        """Answer lines until all have a result, or the batch is cancelled or too late, or the store is full."""
        answering = asyncio.create_task(self._answer_lines(batch))
        try:
            while not answering.done():
                await asyncio.wait({answering}, timeout=min(_LOOK_AGAIN_S, max(0, batch.expires_at - self._now())))
                now = await asyncio.to_thread(self._store.batch, batch.owner, batch.batch_id)
                if now.status == "cancelling" or self._now() >= batch.expires_at:
                    return
            answering.result()
        except QuotaError as error:
            wrong = {"code": "storage_full", "line": None, "message": error.message, "param": None}
            fields: dict[str, Any] = {"errors": {"object": "list", "data": [wrong]}, "ends_as": "failed"}
            await asyncio.to_thread(self._store.advance, batch, "finalizing", fields)
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _answer_lines(self, batch: KeptBatch) -> None:
        principal = self._principal_of(batch.owner)
        if principal is None:
            wrong = {"code": "key_removed", "line": None, "message": "the API key of the batch is gone", "param": None}
            fields: dict[str, Any] = {"errors": {"object": "list", "data": [wrong]}, "ends_as": "failed"}
            await asyncio.to_thread(self._store.advance, batch, "finalizing", fields)
            return
        answerer = InProcess(self._app, replace(principal, is_background=True), partial(engine_up, self._models))

        async def answer(numbered: tuple[int, Line]) -> Result:
            number, line = numbered
            made = await answer_line(line, answerer)
            return Result(number, made.is_error, result(line.custom_id, made))

        def room() -> int:
            at_a_time = max(1, self._num_places() // len(self._running))
            return min(at_a_time, principal.max_concurrency or at_a_time)

        lines = in_threads(await asyncio.to_thread(self._lines_left, batch))
        async with contextlib.aclosing(answer_all(lines, answer, room)) as groups:
            async for group in groups:
                await asyncio.to_thread(self._store.add_results, batch, group)

    def _num_places(self) -> int:
        """Return the number of sequences that the models run at a time."""
        loaded = (model.service for model in self._models.all)
        return max((service.info.max_num_seqs for service in loaded if service is not None), default=1)

    def _lines_left(self, batch: KeptBatch) -> Iterator[tuple[int, Line]]:
        """Return (number, line) of the lines without a result."""
        finished = self._store.finished_lines(batch.batch_id)
        return (
            (number, read_line(text, (batch.body["endpoint"],), max_bytes=self._models.limits.max_body_bytes))
            for number, text in self._store.lines(batch.input_file)
            if number not in finished
        )

    def _end(self, batch: KeptBatch) -> None:
        """Make the files of a batch. A line that did not run has an error with the reason."""
        batch = self._store.batch(batch.owner, batch.batch_id)
        now = self._now()
        ends_as: Status = batch.body.get("ends_as", "completed")
        why = "the batch failed before this request ran"
        if batch.status == "cancelling":
            ends_as, why = "cancelled", "the batch was cancelled before this request ran"
        elif ends_as == "completed" and self._is_unanswered(batch):
            ends_as, why = "expired", "the batch expired before this request ran"
        if batch.status != "cancelling":
            batch = self._store.advance(batch, "finalizing", {"finalizing_at": now})
        rest: Iterator[Result] = iter(())
        if "num_lines" in batch.body:
            code = f"batch_{ends_as}"
            left = list(self._lines_left(batch))
            rest = (Result(number, True, failure(line.custom_id, code, why)) for number, line in left)
        usage = usage_of(self._store.answers(batch.batch_id))
        self._store.finish(batch, ends_as, {f"{ends_as}_at": self._now(), "usage": usage}, rest)

    def _is_unanswered(self, batch: KeptBatch) -> bool:
        num_lines: int = batch.body.get("num_lines", 0)
        return batch.num_completed + batch.num_failed < num_lines

    def _now(self) -> int:
        return int(self._store.clock())
