"""A run as its client sees it: what each sequence gained since the last look, and what all have cost so far."""

import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from aici_engine.server import sse, wire
from aici_engine.server.admission import Principal
from aici_engine.server.client import Stream
from aici_engine.server.errors import text_of
from aici_engine.server.service import Generation, Service
from aici_runtime.errors import ControllerError, NotFoundError


class MissingControllerError(NotFoundError):
    """The protocol's status for all that a controller's start may say."""

    http_status = 400


async def run_events(
    service: Service, who: Principal, generation: Generation, *, with_tokens: bool
) -> AsyncGenerator[bytes, None]:
    """Server-sent events. Raises what stands in the way before the controller has started; says it afterwards."""
    async with service.open(who, [generation]) as [stream]:
        groups = stream.groups()
        first = await anext(groups)
        _raise_failed_start(first[0])
        run_id, created = f"run-{uuid.uuid4()}", int(time.time())
        yield sse.event({"id": run_id, "object": "initial-run", "created": created, "model": service.name})
        forks = [Fork(0, with_tokens, stream.prompt_len)]
        for event in first:
            forks[0].take(event)
        if forks[0].gained:
            yield sse.event(_run(forks, stream))
        async for group in groups:
            for event in group:
                forks[0].take(event)
            yield sse.event(_run(forks, stream))
        yield sse.DONE


def _raise_failed_start(event: wire.StreamOut) -> None:
    if not isinstance(event, wire.FinishOut) or event.failure is None:
        return
    error = event.failure.error()
    if isinstance(error, NotFoundError | ControllerError):
        kind = MissingControllerError if isinstance(error, NotFoundError) else ControllerError
        raise kind(f"While executing instantiate:\n{error.message}", hint=error.hint) from error
    raise error


@dataclass(slots=True)
class Fork:
    """One sequence of a run. `take` adds up what happens, `give` answers with it and begins anew."""

    index: int
    with_tokens: bool
    prompt_len: int
    num_sampled: int = 0
    num_output: int = 0
    gained: bool = False
    _last_is_sample: bool = False
    _text: str = ""
    _logs: str = ""
    _error: str = ""
    _storage: list[Any] = field(default_factory=list)
    _tokens: list[dict[str, Any]] = field(default_factory=list)
    _end: dict[str, str] = field(default_factory=dict)

    def take(self, event: wire.StreamOut) -> None:
        match event:
            case wire.TokenOut():
                self._text += event.text
                self.num_output += 1
                self.num_sampled += not event.forced
                self._last_is_sample = not event.forced
                self._tokens.append(_token(event))
            case wire.BacktrackOut():
                self._tokens.append({"backtrack": event.num_tokens})
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
                return
        self.gained = True

    def give(self) -> dict[str, Any]:
        given: dict[str, Any] = {"index": self.index, **self._end}
        given |= {"text": self._text, "error": self._error, "logs": self._logs, "storage": self._storage}
        if self.with_tokens:
            given["tokens"] = self._tokens
        self._text, self._logs, self._storage, self._tokens, self.gained = "", "", [], [], False
        return given

    @property
    def num_computed(self) -> int:
        """Tokens that the model was given: all but the last, if that was just sampled."""
        return self.prompt_len + self.num_output - self._last_is_sample


def _run(forks: list[Fork], stream: Stream) -> dict[str, Any]:
    sampled = sum(fork.num_sampled for fork in forks)
    computed = sum(fork.num_computed for fork in forks)
    usage = {"prompt_tokens": stream.prompt_len, "sampled_tokens": sampled, "ff_tokens": computed}
    usage["cost"] = 2 * sampled + computed
    run: dict[str, Any] = {"object": "run", "forks": [fork.give() for fork in forks], "usage": usage}
    if (finish := stream.finish) is not None:
        run["timings"] = {
            "started_s": finish.started_s,
            "first_token_s": finish.first_token_s,
            "total_s": finish.total_s,
        }
    return run


def _token(event: wire.TokenOut) -> dict[str, Any]:
    token = {"id": event.token, "bytes": event.data.hex(), "origin": "forced" if event.forced else "sampled"}
    if event.logprob is not None:
        likeliest = [{"id": token_id, "logprob": logprob} for token_id, logprob in event.top]
        token |= {"logprob": event.logprob, "top_logprobs": likeliest}
    return token
