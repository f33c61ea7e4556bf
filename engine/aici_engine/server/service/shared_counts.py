"""Counts of API keys that several servers of a machine share: a file, and the thread that reads and writes the file."""

import asyncio
import concurrent.futures
import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from aici_base.errors import UnavailableError
from aici_engine.server.service.counts_file import Changes, CountsFile
from aici_engine.server.service.key_counts import Bucket
from aici_engine.server.service.server_mark import ServerMark

_RETRY_S: Final = 1.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Job:
    """Changes to write, then a question. None for `ask`: nobody asks. `is_last`: the thread ends after the job."""

    changes: Changes
    ask: Callable[[CountsFile], Any] | None
    done: "concurrent.futures.Future[Any]"
    is_last: bool = False


class SharedCounts:
    """The counts of all servers that use the file at `path`. Implements `KeyCounts`. A context manager.

    A thread reads and writes the file, so a server that holds the file delays nothing but the requests of limited keys:
    for half a second, and from then on such requests are refused at once until the file is free. Changes that nobody
    waits for are kept and written later. When a key is at its limit, the sequences of servers that have died are taken
    off; a second file, at `path` with `-servers` appended, shows which servers live.
    Raises UnavailableError for a file that cannot be used.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._known: set[tuple[str, str]] = set()
        self._changes = Changes()
        self._is_flush_due = False
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        with contextlib.ExitStack() as stack:
            try:
                mark = stack.enter_context(ServerMark(path.with_name(f"{path.name}-servers")))
                self._file = CountsFile(path, mark.number, mark.is_alive, clock)
            except (OSError, sqlite3.Error) as error:
                raise UnavailableError(f"cannot count in {path}: {error}", hint="name another file") from error
            self._closing = stack.pop_all()
        self._closing.callback(self._file.close)
        self._thread = threading.Thread(target=self._work, name="key counts", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._put(CountsFile.leave_all, is_last=True)
        self._thread.join()
        self._closing.close()

    async def take(self, name: str, limits: Mapping[str, float | None], amount: float = 0) -> dict[str, Bucket]:
        bounds: dict[str, float] = {}
        for limit, per_minute in limits.items():
            if per_minute is not None:
                self._known.add((name, limit))
                bounds[limit] = per_minute
            elif (name, limit) in self._known:
                self._known.discard((name, limit))
                self._changes.dropped.add((name, limit))
                self._flush_soon()
        return await self._answer(lambda file: file.take(name, bounds, amount)) if bounds else {}

    def spend(self, name: str, limit: str, amount: float) -> None:
        if (name, limit) in self._known:
            self._changes.spent[name, limit] += amount
            self._flush_soon()

    async def left(self, name: str) -> dict[str, float]:
        left: dict[str, float] = await self._answer(lambda file: file.left(name))
        return left

    async def enter(self, name: str, number: int, most: int | None) -> bool:
        if most is None:
            self._changes.running[name] += number
            self._flush_soon()
            return True
        entering = asyncio.wrap_future(self._put(lambda file: file.enter(name, number, most)))
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError:
            entering.add_done_callback(lambda late: self._leave_late(late, name, number))
            raise

    def leave(self, name: str, number: int) -> None:
        self._changes.running[name] -= number
        self._flush_soon()

    def _leave_late(self, entering: "asyncio.Future[bool]", name: str, number: int) -> None:
        """Take off the sequences of a caller that has gone."""
        if not entering.cancelled() and entering.exception() is None and entering.result():
            self.leave(name, number)

    # From the event loop to the thread.

    async def _answer(self, ask: Callable[[CountsFile], Any]) -> Any:
        return await asyncio.wrap_future(self._put(ask))

    def _put(
        self, ask: Callable[[CountsFile], Any] | None, *, is_last: bool = False
    ) -> "concurrent.futures.Future[Any]":
        job = _Job(self._changes, ask, concurrent.futures.Future(), is_last)
        self._changes = Changes()
        self._jobs.put(job)
        return job.done

    def _flush_soon(self) -> None:
        """Hand the changes of this turn of the event loop to the thread, or those since the thread had the last."""
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        asyncio.wrap_future(self._put(None)).add_done_callback(self._flushed)

    def _flushed(self, _: "asyncio.Future[None]") -> None:
        self._is_flush_due = False
        if self._changes:
            self._flush_soon()

    # The thread.

    def _work(self) -> None:
        """Answer all jobs that wait in one transaction. Keep changes that could not be written."""
        kept = Changes()
        is_free = True
        jobs: list[_Job] = []
        while not any(job.is_last for job in jobs):
            jobs = self._next(_RETRY_S if kept else None)
            failed: Exception | None = None
            answers: list[Any] = [None] * len(jobs)
            try:
                with self._file.transaction():
                    self._file.write(kept)
                    for number, job in enumerate(jobs):
                        self._file.write(job.changes)
                        answers[number] = None if job.ask is None else job.ask(self._file)
                kept = Changes()
            except (OSError, sqlite3.Error) as error:
                failed = error
                for job in jobs:
                    kept.add(job.changes)
            if is_free != (failed is None):
                is_free = failed is None
                _log.warning("the limits of keys are counted again" if is_free else _words(self._path, failed))
            for job, answer in zip(jobs, answers, strict=True):
                _end(job, answer, None if failed is None else _words(self._path, failed))

    def _next(self, timeout_s: float | None) -> list[_Job]:
        """Wait for jobs. Return all present jobs: none after `timeout_s`."""
        jobs = []
        with contextlib.suppress(queue.Empty):
            jobs.append(self._jobs.get(timeout=timeout_s))
            while True:
                jobs.append(self._jobs.get_nowait())
        return jobs


def _end(job: _Job, answer: Any, error: str | None) -> None:
    if not job.done.set_running_or_notify_cancel():
        return  # the caller has gone
    if error is None or job.ask is None:
        job.done.set_result(answer)
    else:
        job.done.set_exception(UnavailableError(error, hint="try again"))


def _words(path: Path, error: Exception | None) -> str:
    return f"the limits of keys cannot be counted in {path}: {error}"
