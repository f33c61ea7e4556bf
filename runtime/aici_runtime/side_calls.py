"""The engine's end of the side channel: any number of requests, each with a future for its answer."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any
from uuid import uuid4

import orjson

from aici_base.errors import AiciError
from aici_runtime.channels.channel import Mailbox
from aici_runtime.engine_json import data_of, encode

LOCAL_USER = "localhost"
"""The user of requests that name none."""


class SideCalls:
    """Any thread may call; one thread runs `serve`.

    `send` puts a message into the mailbox of requests, and runs under `lock`. `check_alive` raises RuntimeDiedError
    once the runtime has died.
    """

    def __init__(self, responses: Mailbox, send: Callable[[bytes], None], check_alive: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self._responses = responses
        self._send = send
        self._check_alive = check_alive
        self._pending: dict[str, Future[Any]] = {}
        self._pending_lock = threading.Lock()
        self._has_failed = False

    def call(
        self,
        request: Mapping[str, object],
        *,
        user: str = LOCAL_USER,
        is_admin: bool = True,
        decode: Callable[[Any], Any] | None = None,
    ) -> "Future[Any]":
        """Send a request. The future has the data of the response, or `decode(data)`, or the reported error. It cannot
        be cancelled: the runtime would do the work all the same."""
        rid = str(uuid4())
        future = _new_future()
        message = encode({"$rid": rid, "$auth": {"user": user, "is_admin": is_admin}, **request})
        with self._pending_lock:
            self._check_alive()
            self._pending[rid] = future
        try:
            with self.lock:
                self._send(message)
        except BaseException:
            with self._pending_lock:
                self._pending.pop(rid, None)
            raise
        return future if decode is None else _mapped(future, decode)

    def serve(self) -> None:
        """Pass every response to its future, until `fail` was called and the mailbox of responses is woken."""
        while True:
            message = self._responses.receive()
            if self._has_failed:
                return
            response = orjson.loads(message)
            with self._pending_lock:
                future = self._pending.pop(response.get("$rid", ""), None)
            if future is None:
                continue
            try:
                result = data_of(response)
            except AiciError as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    def fail(self, error: Exception) -> None:
        """Answer all pending requests with `error`: the runtime has died, and `check_alive` says so."""
        with self._pending_lock:
            self._has_failed = True
            pending, self._pending = self._pending, {}
        for future in pending.values():
            future.set_exception(error)


def _new_future() -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def _mapped(source: "Future[Any]", decode: Callable[[Any], Any]) -> "Future[Any]":
    target = _new_future()

    def forward(done: "Future[Any]") -> None:
        error = done.exception()
        if error is not None:
            target.set_exception(error)
        else:
            target.set_result(decode(done.result()))

    source.add_done_callback(forward)
    return target
