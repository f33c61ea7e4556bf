"""The events of `/v1/run`: what every fork gained since the previous event, and the usage of all forks so far."""

import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from aici_base.errors import ControllerError, NotFoundError
from aici_engine.events import explanation_fields
from aici_engine.server.errors import MissingControllerError, text_of
from aici_engine.server.gateway import sse
from aici_engine.server.link import wire
from aici_engine.server.link.stream import EngineStream
from aici_engine.server.protocols.warnings import warning_field
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Generation, Service


async def run_events(
    service: Service, principal: Principal, generation: Generation, *, with_tokens: bool
) -> AsyncGenerator[bytes, None]:
    """Yield the server-sent events of a run. An error before the controller has started is raised; a later error is
    part of an event."""
    async with service.open(principal, [generation]) as [stream]:
        groups = stream.groups()
        first = await anext(groups)
        _raise_failed_start(first[0])
        run_id, created = f"run-{uuid.uuid4()}", int(time.time())
        yield sse.event({"id": run_id, "object": "initial-run", "created": created, "model": service.name})
        run = RunView(stream, with_tokens, generation.controller.warnings if generation.controller else ())
        if run.take(first):
            yield sse.event(run.give())
        async for group in groups:
            run.take(group)
            yield sse.event(run.give())
        yield sse.DONE


def _raise_failed_start(event: wire.StreamOut) -> None:
    if not isinstance(event, wire.FinishOut) or event.failure is None:
        return
    error = event.failure.error()
    if isinstance(error, NotFoundError | ControllerError):
        message = f"While executing instantiate:\n{error.message}"
        if isinstance(error, NotFoundError):
            raise MissingControllerError(message, hint=error.hint) from error
        raise error.with_message(message) from error
    raise error


class RunView:
    """A run with all of its forks. `take` collects events; `give` returns the collected changes and starts afresh.

    `warnings`: for the last event.
    """

    def __init__(self, stream: EngineStream, with_tokens: bool, warnings: Sequence[str] = ()) -> None:
        self._stream = stream
        self._warnings = warnings
        self._with_tokens = with_tokens
        self._forks = [ForkView(0, with_tokens)]

    def take(self, events: list[wire.StreamOut]) -> bool:
        """Collect events. Return False if the client has nothing to hear of them."""
        gains = [self._take(event) for event in events]
        return any(gains)

    def _take(self, event: wire.StreamOut) -> bool:
        if isinstance(event, wire.ForkOut):
            if isinstance(event.event, wire.ForkedOut):
                self._forks.append(ForkView(event.fork, self._with_tokens, event.event.parent))
            return self._forks[event.fork].take(event.event)
        if isinstance(event, wire.FinishOut):
            # The root ends last. A fork without an end of its own was ended by the server, and ends with the root.
            for fork in self._forks[1:]:
                fork.take(msgspec.structs.replace(event, tail="", stop=None))
        return self._forks[0].take(event)

    def give(self) -> dict[str, Any]:
        prompt_len, finish = self._stream.prompt_len, self._stream.finish
        sampled = sum(fork.num_sampled for fork in self._forks)
        computed = prompt_len + sum(fork.num_computed for fork in self._forks)
        usage = {"prompt_tokens": prompt_len, "sampled_tokens": sampled, "ff_tokens": computed}
        usage["cost"] = 2 * sampled + computed
        usage["forced_tokens"] = sum(fork.num_forced for fork in self._forks)
        run: dict[str, Any] = {"object": "run", "forks": [fork.give() for fork in self._forks], "usage": usage}
        if finish is not None:
            run["timings"] = {
                "started_s": finish.started_s,
                "first_token_s": finish.first_token_s,
                "total_s": finish.total_s,
            }
            run |= warning_field(self._warnings)
        return run


@dataclass(slots=True)
class ForkView:
    """One sequence of a run. `parent`: the fork it was forked from. An ended fork keeps its finish reason in every
    further event."""

    index: int
    with_tokens: bool
    parent: int | None = None
    num_sampled: int = 0
    num_forced: int = 0
    _num_inherited: int | None = None
    _last_is_sample: bool = False
    _text: str = ""
    _logs: str = ""
    _error: str = ""
    _storage: list[Any] = field(default_factory=list)
    _tokens: list[dict[str, Any]] = field(default_factory=list)
    _end: dict[str, str] = field(default_factory=dict)

    def take(self, event: wire.StreamOut | wire.ForkedOut) -> bool:
        if self._end:
            return False
        match event:
            case wire.ForkedOut():
                self._text += event.text
                self._num_inherited = len(event.tokens)
                self._tokens += map(_token, event.tokens)
            case wire.TokenOut():
                self._text += event.text
                self.num_sampled += not event.forced
                self.num_forced += event.forced
                self._last_is_sample = not event.forced
                self._tokens.append(_token(event))
            case wire.BacktrackOut():
                self._tokens.append({"backtrack": event.num_tokens})
            case wire.SuspendedOut():
                self._tokens.append({"suspended": True})
            case wire.ControlOut():
                self._logs += event.logs
                self._storage += event.storage
            case wire.FinishOut():
                self._text += event.tail
                self._end = {"finish_reason": str(event.reason)}
                if event.stop is not None:
                    self._end["stop"] = event.stop
                if event.failure is not None:
                    self._error = text_of(event.failure.error())
            case _:
                return False
        return True

    def give(self) -> dict[str, Any]:
        given: dict[str, Any] = {"index": self.index, **self._end}
        if self.parent is not None:
            given["parent"] = self.parent
        given |= {"text": self._text, "error": self._error, "logs": self._logs, "storage": self._storage}
        if self.with_tokens:
            if self._num_inherited is not None:
                given["inherited_tokens"] = self._num_inherited
            given["tokens"] = self._tokens
        self._text, self._logs, self._error, self._storage, self._tokens = "", "", "", [], []
        self._num_inherited = None
        return given

    @property
    def num_computed(self) -> int:
        """Tokens of this fork that the model has computed: all but the last token if sampled."""
        return self.num_sampled + self.num_forced - self._last_is_sample


def _token(event: wire.TokenOut) -> dict[str, Any]:
    token: dict[str, Any] = {
        "id": event.token,
        "bytes": event.data.hex(),
        "origin": "forced" if event.forced else "sampled",
    }
    if event.logprob is not None:
        likeliest = [{"id": token_id, "logprob": logprob} for token_id, logprob in event.top]
        token |= {"logprob": event.logprob, "top_logprobs": likeliest}
    if event.explanation is not None:
        token["explanation"] = explanation_fields(event.explanation)
    return token
