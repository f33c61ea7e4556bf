"""A server that answers the lines of `aici batch`."""

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, Self

import orjson

from aici.backend import Cancel
from aici.remote.connection import Server
from aici_engine.server.batches.line import Answer, Line

_START_S: Final = 300.0
"""A server that is starting an engine is waited for this long."""
_LOOK_AGAIN_S: Final = 1.0
_MAX_PAGE: Final = 1000


class ServerAnswers:
    """Answers lines by a server, several at a time. A context manager; leaving it breaks off the lines that run.

    Raises UnreachableError without a server at the address, and UnauthorizedError for a wrong key.
    """

    def __init__(self, url: str, concurrency: int) -> None:
        self._server = Server(url)
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="batch")
        self._cancel = Cancel()
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._cancel.set()
        self._threads.shutdown(cancel_futures=True)

    async def __call__(self, line: Line) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, line)

    def _answer(self, line: Line) -> Answer:
        answer = self._post(line)
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            self._wait_ready()
        return answer

    def _post(self, line: Line) -> Answer:
        with (
            self._server.send("POST", line.url.removeprefix("/v1"), orjson.dumps(line.body)) as exchange,
            self._cancel.covering(exchange.break_off),
            exchange.read_errors(),
        ):
            response = exchange.any_response()
            if response.status_code == HTTPStatus.UNAUTHORIZED:
                exchange.response()  # raises; every line would fail
            after = response.headers.get("retry-after", "")
            return Answer(
                status=response.status_code,
                body=_json(response.read(), response.status_code),
                request_id=response.headers.get("x-request-id", ""),
                retry_after_s=float(after) if after.isdecimal() else None,
            )

    def _wait_ready(self) -> None:
        """Wait until the server has an engine again, or for _START_S."""
        end = time.monotonic() + _START_S
        while time.monotonic() < end:
            with self._server.send("GET", "/ready", for_operators=True) as exchange:
                if exchange.any_response().status_code == HTTPStatus.OK:
                    return
            if self._stopped.wait(_LOOK_AGAIN_S):
                return


def _json(body: bytes, status: int) -> bytes:
    """Return the body of an answer. A proxy's page becomes an error in JSON."""
    with contextlib.suppress(orjson.JSONDecodeError):
        orjson.loads(body)
        return body
    text = body.decode(errors="replace").strip()[:_MAX_PAGE] or f"HTTP status {status}"
    return orjson.dumps({"error": {"message": text, "type": "server_error", "param": None, "code": None}})
