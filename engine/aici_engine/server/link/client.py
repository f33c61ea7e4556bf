"""The API process's side of the link: open streams by number, calls, and whether an engine is up. One asyncio loop.

A stream that has given nothing when its engine dies is sent to the next engine: see `replays`.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from aici_base.errors import AiciError, RuntimeDiedError, UnavailableError, UsageError
from aici_engine.events import FinishReason
from aici_engine.server.link import wire
from aici_engine.server.link.replays import Replays
from aici_engine.server.link.stream import EngineStream, Watch, unwatched
from aici_engine.server.link.suspects import Suspects

_SUSPECTED = UnavailableError(
    "two engines have died while they computed this request, which may be the reason",
    hint="change the request before you send it again; the server's log has the engine's last output",
)

_OF_NO_STREAM = (wire.Reply, wire.GuestTimeOut, wire.Ready)
_SILENT_S = 2.0
_MAX_DEATHS = 2
"""A request may be the reason of deaths: after so many, it fails."""


def _never_silent() -> float:
    return 0.0


def _nowhere(_: EngineStream) -> bool:
    return False


class Link(Protocol):
    """Sends messages to the engine. Messages to a dead engine may be lost; the owner then calls `EngineClient.lost`."""

    def send(self, message: wire.ToEngine) -> None: ...


class EngineClient:
    """Opens streams and calls the engine. Without an engine, `call` raises UnavailableError; so does `open`, unless
    another engine is starting.

    `on_guest_time` is called with processor time of guests, by owner. `up` is set while an engine is connected, `down`
    while no engine is, `busy` while streams or calls are open, `idle` while no stream is. Only the owner of the link
    calls `connected`, `receive` and `lost`.

    `numbers`: of streams and calls; clients that move streams to each other share the numbers. `elsewhere` may move a
    stream that loses its engine to another client; the result is whether the stream was moved. `changed` is called
    when an engine has come or gone. `suspects`: clients that move streams to each other share them.
    """

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self._link: Link | None = None
        self._numbers = numbers or itertools.count(1)
        self.elsewhere: Callable[[EngineStream], bool] = _nowhere
        self.changed: Callable[[], None] = lambda: None
        self._streams: dict[int, EngineStream] = {}
        self._replays = Replays(self._send_again)
        self.suspects = Suspects()
        self._will_return = False
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self.info: wire.EngineInfo | None = None
        self.num_engines = 0
        self.on_guest_time: Callable[[dict[str, float]], None] = lambda _: None
        self.up, self.down = asyncio.Event(), asyncio.Event()
        self.down.set()
        self.busy = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()
        self._silence = _never_silent

    @property
    def is_ready(self) -> bool:
        return self._link is not None

    @property
    def num_streams(self) -> int:
        """Streams whose FinishOut has not arrived."""
        return len(self._streams)

    @property
    def num_restarts(self) -> int:
        """Engines that were started because the engine before had died."""
        return max(0, self.num_engines - 1)

    @property
    def waiting(self) -> list[EngineStream]:
        """The streams that have given nothing, in order of arrival."""
        return [stream for stream in self._streams.values() if stream.submit is not None and not stream.has_begun]

    def open(self, submit: wire.Submit, *, is_whole: bool = False, watch: Watch = unwatched) -> EngineStream:
        """Submit a sequence, under a new number; never blocks. An invalid request arrives as the failure of the
        returned stream.

        `is_whole`: nobody reads the stream before its end. Such a stream can begin again on another engine. Raises
        UnavailableError for a request that was in the last engines when they died: see `Suspects`.

        While another engine is starting, the sequence waits. Callers refuse requests then (`check_up`): a waiting
        sequence belongs to a request taken before.
        """
        if not self._will_return:
            self._connected()
        submit = msgspec.structs.replace(submit, stream=next(self._numbers))
        self.suspects.check(submit)
        stream = self._streams[submit.stream] = EngineStream(self, submit, watch, is_whole=is_whole)
        self._work()
        if self._link is None:
            self._replays.hold(stream)
        else:
            self._submit(self._link, stream, submit)
        return stream

    def release(self, stream: EngineStream) -> None:
        """Forget a stream that has given nothing: another client takes the stream by `adopt`."""
        del self._streams[stream.number]
        if self._link is not None and not self._replays.holds(stream):
            self._link.send(wire.Abort(stream.number))
        self._replays.heard(stream)
        # The engine ends the aborted stream later. The stream may be back here by then, and that end is not its end.
        stream.renumber(next(self._numbers))
        self._rest()

    def adopt(self, stream: EngineStream) -> None:
        """Take a stream that another client has released."""
        stream.move_to(self)
        self._streams[stream.number] = stream
        self._work()
        self._replays.hold(stream)
        if self._link is not None:
            self._replays.begin()

    async def ping(self, limit_s: float) -> None:
        """Wait for the engine's next step, or for `limit_s`. Then `is_hanging` is of now, also without other work."""
        with contextlib.suppress(AiciError, TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.call("ping")

    @property
    def is_hanging(self) -> bool:
        """An engine is up, has work, and has made no progress for seconds."""
        return self.is_ready and self._silence() >= _SILENT_S

    def check_up(self) -> None:
        """Raise UnavailableError if no engine is up."""
        self._connected()

    def abort(self, number: int) -> None:
        if (stream := self._streams.get(number)) is None:
            return
        if self._link is not None and not self._replays.holds(stream):
            stream.drop_submit()
            self._link.send(wire.Abort(number))
        else:
            self._end(stream, FinishReason.ABORT)

    def fail(self, stream: EngineStream, why: AiciError) -> None:
        """End a stream with `why`, without waiting for the engine. No effect on a stream that has ended."""
        if self._end(stream, FinishReason.FAIL, wire.Failure.of(why)) and self._link is not None:
            self._link.send(wire.Abort(stream.number))

    def _end(self, stream: EngineStream, reason: FinishReason, failure: wire.Failure | None = None) -> bool:
        """End a stream here. Return False if the stream has ended before."""
        if self._streams.pop(stream.number, None) is None:
            return False
        self._rest()
        self._replays.heard(stream)
        stream.put(wire.FinishOut(stream.number, reason, "", wire.UsageOut(stream.prompt_len, 0, 0), failure=failure))
        return True

    async def call(self, method: str) -> Any:
        link = self._connected()
        number = next(self._numbers)
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        self.busy.set()
        try:
            _send(link, wire.EngineCall(number, method))
            return await future
        finally:
            self._calls.pop(number, None)
            self._rest()

    def connected(self, link: Link, info: wire.EngineInfo, silence: "Callable[[], float] | None" = None) -> None:
        """Record that an engine is up. `silence` returns the seconds for which the engine has made no progress."""
        self._link, self.info = link, info
        self._silence = silence or _never_silent
        self._will_return = False
        self.num_engines += 1
        self.down.clear()
        self.up.set()
        self._replays.begin()
        self.changed()

    def receive(self, message: wire.FromEngine) -> None:
        if isinstance(message, _OF_NO_STREAM):
            self._receive_other(message)
            return
        stream = self._streams.get(message.stream)
        if isinstance(message, wire.FinishOut):
            if stream is not None and self._begin_again(stream, message):
                return
            self._streams.pop(message.stream, None)
            self._rest()
            if stream is not None and message.failure is None and self.suspects.are_some:
                self.suspects.note_success(stream.digest)
        if stream is not None:
            stream.put(message)
            if stream.num_deaths and not isinstance(message, wire.AcceptedOut):
                self._replays.heard(stream)

    def _receive_other(self, message: wire.Reply | wire.GuestTimeOut | wire.Ready) -> None:
        """Take a message that is of no stream."""
        if isinstance(message, wire.GuestTimeOut):
            self.on_guest_time(message.used_s)
        elif isinstance(message, wire.Reply):
            future = self._calls.pop(message.call, None)
            if future is None or future.done():
                return
            if message.failure is not None:
                future.set_exception(message.failure.error())
            else:
                future.set_result(message.result)

    def _begin_again(self, stream: EngineStream, finish: wire.FinishOut) -> bool:
        """Send a stream again if its controller runtime has died: the engine waits for a new runtime. Return whether
        the stream was sent."""
        if finish.failure is None or finish.failure.code != RuntimeDiedError.code:
            return False
        if self._link is None or stream.submit is None or stream.num_deaths + 1 >= _MAX_DEATHS:
            return False
        stream.begin_again()
        self._submit(self._link, stream, stream.submit)
        return True

    def lost(self, why: AiciError, *, will_return: bool = False) -> None:
        """Record that the engine is gone: every call raises `why`, and streams fail with `why`.

        `will_return`: another engine is starting. Streams that have given nothing, whole streams too, wait for that
        engine, but for one engine only: a request may be the reason of the death.
        """
        self._link = None
        self._will_return = will_return
        self.up.clear()
        self.down.set()
        held = self._replays.pause()
        if will_return:
            self.suspects.note_death(stream.digest for stream in self._streams.values() if stream.number not in held)
        for stream in list(self._streams.values()):
            self._loses_engine(stream, why, was_held=stream.number in held)
        calls, self._calls = self._calls, {}
        for future in calls.values():
            if not future.done():
                future.set_exception(why)
        self.changed()

    def _loses_engine(self, stream: EngineStream, why: AiciError, *, was_held: bool) -> None:
        """Move a stream to another client, keep the stream for the next engine, or end the stream."""
        if stream.submit is None:
            self.fail(stream, why)
            return
        if not was_held:
            stream.begin_again()
        if stream.num_deaths >= _MAX_DEATHS and not was_held:
            self.fail(stream, _SUSPECTED if self._will_return else why)
        elif self.elsewhere(stream):
            pass
        elif self._will_return:
            self._replays.hold(stream)
        else:
            self.fail(stream, why)

    def _work(self) -> None:
        self.busy.set()
        self.idle.clear()

    def _rest(self) -> None:
        if not self._streams:
            self.idle.set()
            if not self._calls:
                self.busy.clear()

    def _send_again(self, stream: EngineStream) -> None:
        assert self._link is not None
        assert stream.submit is not None
        self._submit(self._link, stream, stream.submit)

    def _submit(self, link: Link, stream: EngineStream, submit: wire.Submit) -> None:
        try:
            _send(link, submit)
        except UsageError as error:
            self.fail(stream, error)

    def _connected(self) -> Link:
        if self._link is None:
            raise UnavailableError("the engine is not up", hint="the engine is starting: try again")
        return self._link


def _send(link: Link, message: wire.ToEngine) -> None:
    """Send a message. Raises UsageError for JSON without a msgpack form: a lone surrogate, an integer over 64 bits."""
    try:
        link.send(message)
    except (ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"the request has a value that cannot be sent to the engine: {error}") from error
