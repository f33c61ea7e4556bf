"""The waiting and running requests: the output so far, and how to stop a request."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from aici_base.errors import AiciError, NotFoundError, StoppedError
from aici_engine.server.link import wire
from aici_engine.server.telemetry import request_record


class Viewer(Protocol):
    """The holder of a key, as far as the list of requests is concerned: a `Principal`."""

    @property
    def name(self) -> str: ...

    @property
    def is_admin(self) -> bool: ...


class _Stream(Protocol):
    prompt_len: int

    def fail(self, why: AiciError) -> None: ...


@dataclass(slots=True, kw_only=True)
class RunningRequest:
    """One prompt with its forks. An HTTP request with several prompts, or with `n` above 1, is several of these.

    `request_id`: of the HTTP request, as in the header `x-request-id`. `owner`: the name of the key. `started_at`: Unix
    seconds. `has_begun`: the engine has taken the request. `output_tokens`: of all forks.
    """

    id: str
    request_id: str
    model: str
    owner: str
    started_at: float
    prompt_tokens: int
    has_begun: bool = False
    has_ended: bool = False
    output_tokens: int = 0
    stream: _Stream | None = None

    def fields(self) -> dict[str, Any]:
        """Return the request as clients see it. Texts are never shown."""
        return {
            "id": self.id,
            "request_id": self.request_id,
            "model": self.model,
            "key": self.owner,
            "state": "running" if self.has_begun else "waiting",
            "started": round(self.started_at, 3),
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
        }


class RunningRequests:
    """Knows every open stream of a server. Used on the event loop only."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._all: dict[str, RunningRequest] = {}

    def begin(self, *, model: str, owner: str, prompt_tokens: int) -> RunningRequest:
        """Return a request for `watching` and `opened`. The request is listed from `opened` on."""
        record = request_record.current.get()
        return RunningRequest(
            id=f"req-{os.urandom(8).hex()}",
            request_id="" if record is None else record.request_id,
            model=model,
            owner=owner,
            started_at=self._clock(),
            prompt_tokens=prompt_tokens,
        )

    def watching(
        self, request: RunningRequest, watch: Callable[[wire.StreamOut], None]
    ) -> Callable[[wire.StreamOut], None]:
        """Return `watch`, which also keeps `request` up to date and takes it off the list at its end."""

        def watched(event: wire.StreamOut) -> None:
            if isinstance(event, wire.FinishOut):
                request.has_ended = True
                self._all.pop(request.id, None)
            else:
                request.has_begun = True
                inner = event.event if isinstance(event, wire.ForkOut) else event
                if isinstance(inner, wire.TokenOut):
                    request.output_tokens += 1
            watch(event)

        return watched

    def opened(self, request: RunningRequest, stream: _Stream) -> None:
        """List a request, unless it has ended while it was opened."""
        request.stream = stream
        if not request.has_ended:
            self._all[request.id] = request

    def seen_by(self, viewer: Viewer) -> list[RunningRequest]:
        """Return the requests of a key, or all for an administrator, oldest first."""
        return [each for each in self._all.values() if viewer.is_admin or each.owner == viewer.name]

    def stop(self, request_id: str, viewer: Viewer) -> RunningRequest:
        """End a request with StoppedError. Raises NotFoundError for a request that the key does not see."""
        request = self._all.get(request_id)
        if request is None or not (viewer.is_admin or request.owner == viewer.name):
            raise NotFoundError(
                f"no request {request_id} is running", hint="GET /v1/requests lists the running requests of the key"
            )
        assert request.stream is not None
        by = "" if request.owner == viewer.name else " by an administrator"
        request.stream.fail(StoppedError(f"the request was stopped{by}", hint="send the request again to run it anew"))
        return request
