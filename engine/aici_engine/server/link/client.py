"""The API process's end of the engine: streams by number, calls, and the engine's life. For one asyncio loop."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, Self, TypeAlias

from aici_base.errors import AiciError, TimedOutError, UnavailableError, UsageError
from aici_engine.config import SamplingParams
from aici_engine.events import FinishReason
from aici_engine.server.link import wire

_FAILURES = {
    FinishReason.ABORT: "the request was ended by the server",
    FinishReason.DEADLOCK: "the controller waits, and nobody is left who could wake it",
    FinishReason.OUT_OF_FUEL: "the controller used up ten contexts' worth of tokens without an end",
}

Watch: TypeAlias = Callable[[wire.StreamOut], None]


def _unwatched(_: wire.StreamOut) -> None: ...


class Stream:
    """The events of one submitted sequence. A context manager: who leaves early aborts it.

    `watch` is told of each event when it arrives, whenever it is read.
    """

    def __init__(self, client: "EngineClient", number: int, prompt_len: int, watch: Watch) -> None:
        self._client = client
        self.number = number
        self.prompt_len = prompt_len
        self.finish: wire.FinishOut | None = None
        self._events: asyncio.Queue[wire.StreamOut] = asyncio.Queue()
        self._expiry: asyncio.TimerHandle | None = None
        self._watch = watch

    def put(self, event: wire.StreamOut) -> None:
        self._watch(event)
        self._events.put_nowait(event)

    async def __aiter__(self) -> AsyncIterator[wire.StreamOut]:
        """Every event, the FinishOut last. Does not raise for a stream that failed: see `finish.failure`."""
        while self.finish is None:
            event = await self._events.get()
            if isinstance(event, wire.FinishOut):
                self.finish = event
            yield event

    async def groups(self) -> AsyncIterator[list[wire.StreamOut]]:
        """The events as by iteration, but those that came together in one list, with at most one sampled token a fork.

        To who keeps up that is one list a step, or two: what guests force comes before the forward pass.
        """
        group: list[wire.StreamOut] = []
        sampled: set[int] = set()
        async for event in self:
            fork, inner = (event.fork, event.event) if isinstance(event, wire.ForkOut) else (0, event)
            is_sample = isinstance(inner, wire.TokenOut) and not inner.forced
            if is_sample and fork in sampled:
                yield group
                group, sampled = [], set()
            group.append(event)
            if is_sample:
                sampled.add(fork)
            if self._events.empty():
                yield group
                group, sampled = [], set()

    def result(self) -> wire.FinishOut:
        """The end, once it has come. Raises what made it fail, or end as nobody asked for."""
        assert self.finish is not None
        if self.finish.failure is not None:
            raise self.finish.failure.error()
        if self.finish.reason in _FAILURES:
            raise AiciError(_FAILURES[self.finish.reason])
        return self.finish

    def abort(self) -> None:
        """End it before the engine's next step. Idempotent."""
        self._client.abort(self.number)

    def expire_after(self, seconds: float) -> None:
        """When that time is over, the stream fails with TimedOutError."""
        why = TimedOutError(f"the request took longer than {seconds:g} s")
        self._expiry = asyncio.get_running_loop().call_later(seconds, self._client.fail, self, why)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self.abort()


class Link(Protocol):
    """How messages get to the engine. They may be lost when it is dead: its owner then calls `EngineClient.lost`."""

    def send(self, message: wire.ToEngine) -> None: ...


class EngineClient:
    """`receive` and `lost` are the link's to call. While there is no engine, everything raises UnavailableError.

    `up` is set while there is one, `down` while there is none.
    """

    def __init__(self) -> None:
        self._link: Link | None = None
        self._numbers = itertools.count(1)
        self._streams: dict[int, Stream] = {}
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self.info: wire.EngineInfo | None = None
        self.num_engines = 0
        self.up, self.down = asyncio.Event(), asyncio.Event()
        self.down.set()

    @property
    def is_ready(self) -> bool:
        return self._link is not None

    @property
    def num_streams(self) -> int:
        """Not ended yet, as far as is known here."""
        return len(self._streams)

    def open(
        self,
        prompt: list[int],
        sampling: SamplingParams,
        *,
        controller: str | None = None,
        argument: object = None,
        score_from: int | None = None,
        priority: int = 0,
        salt: str | None = None,
        watch: Watch = _unwatched,
    ) -> Stream:
        """Submit a sequence; never blocks. What is wrong with it comes as the stream's failure."""
        link = self._connected()
        stream = Stream(self, next(self._numbers), len(prompt), watch)
        self._streams[stream.number] = stream
        try:
            _send(link, wire.Submit(stream.number, prompt, sampling, controller, argument, score_from, priority, salt))
        except UsageError as error:
            self.fail(stream, error)
        return stream

    def abort(self, number: int) -> None:
        if number in self._streams and self._link is not None:
            self._link.send(wire.Abort(number))

    def fail(self, stream: Stream, why: AiciError) -> None:
        """End a stream whatever the engine says of it. One that has ended stays as it is."""
        if self._streams.pop(stream.number, None) is None:
            return
        usage = wire.UsageOut(stream.prompt_len, 0, 0)
        stream.put(wire.FinishOut(stream.number, FinishReason.FAIL, "", usage, failure=wire.Failure.of(why)))
        if self._link is not None:
            self._link.send(wire.Abort(stream.number))

    async def call(self, method: str) -> Any:
        link = self._connected()
        number = next(self._numbers)
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            _send(link, wire.Call(number, method))
            return await future
        finally:
            self._calls.pop(number, None)

    def connected(self, link: Link, info: wire.EngineInfo) -> None:
        self._link, self.info = link, info
        self.num_engines += 1
        self.down.clear()
        self.up.set()

    def receive(self, message: wire.FromEngine) -> None:
        if isinstance(message, wire.Reply):
            future = self._calls.pop(message.call, None)
            if future is not None and not future.done():
                if message.failure is not None:
                    future.set_exception(message.failure.error())
                else:
                    future.set_result(message.result)
        elif not isinstance(message, wire.Ready):
            number = message.stream
            stream = (
                self._streams.pop(number, None) if isinstance(message, wire.FinishOut) else self._streams.get(number)
            )
            if stream is not None:
                stream.put(message)

    def lost(self, why: AiciError) -> None:
        """The engine is gone: every stream fails, every call raises."""
        self._link = None
        self.up.clear()
        self.down.set()
        for stream in list(self._streams.values()):
            self.fail(stream, why)
        calls, self._calls = self._calls, {}
        for future in calls.values():
            if not future.done():
                future.set_exception(why)

    def _connected(self) -> Link:
        if self._link is None:
            raise UnavailableError("the engine is not up", hint="it is starting, or starting anew: try again")
        return self._link


def _send(link: Link, message: wire.ToEngine) -> None:
    """UsageError for what JSON could say and the wire cannot: half a surrogate pair, a number beyond 64 bits."""
    try:
        link.send(message)
    except (ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"the request holds what cannot be passed on: {error}") from error
