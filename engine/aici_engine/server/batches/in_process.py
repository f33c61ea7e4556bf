"""Calls the application without a socket: a line of a batch passes the same code as a request."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message

from aici_base.errors import UsageError
from aici_engine.server.batches.line import Answer, Line
from aici_engine.server.errors import UnknownModelError
from aici_engine.server.gateway.error_responses import openai_body
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.models import Models

_STREAMED: Final = openai_body(UsageError("a batch has no streams: leave stream out", param="stream"))


class InProcess:
    """Answers lines by the application. The lines have the rights of `principal`.

    `ready` waits until there is an engine for a line.
    """

    def __init__(self, app: ASGIApp, principal: Principal, ready: Callable[[Line], Awaitable[object]]) -> None:
        self._app = app
        self._principal = principal
        self._ready = ready

    async def __call__(self, line: Line) -> Answer:
        """Return the answer. Cancelling ends the sequences of the line."""
        if line.body.get("stream"):
            return Answer(HTTPStatus.BAD_REQUEST, orjson.dumps(_STREAMED))
        await self._ready(line)
        request: list[Message] = [{"type": "http.request", "body": orjson.dumps(line.body), "more_body": False}]
        start: dict[str, Any] = {}
        body = bytearray()

        async def receive() -> Message:
            if request:
                return request.pop()
            await asyncio.Event().wait()  # the caller never leaves
            raise AssertionError

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                body.extend(message.get("body", b""))

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": line.url,
            "raw_path": line.url.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": None,
            "server": None,
            "state": {"principal": self._principal},
        }
        await self._app(scope, receive, send)
        headers = Headers(raw=start["headers"])
        after = headers.get("retry-after")
        return Answer(
            status=start["status"],
            body=bytes(body),
            request_id=headers.get("x-request-id", ""),
            retry_after_s=None if after is None else float(after),
        )


async def engine_up(models: Models, line: Line) -> None:
    """Wait until the engine of a line's model is up, if the model is loaded. A request loads a model that is not."""
    name = line.body.get("model")
    with contextlib.suppress(UnknownModelError):
        service = models.find(name if isinstance(name, str) else None).service
        if service is not None:
            await service.client.up.wait()
