"""An engine behind the server's client that plays the scripts of a test: no model, no processes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from aici_engine.events import FinishReason
from aici_engine.server.link import wire
from aici_engine.server.link.client import EngineClient

Script = Callable[[wire.Submit], Iterable[wire.StreamOut]]


def says(*texts: str, reason: FinishReason = FinishReason.EOS, stop: str | None = None, num_cached: int = 0) -> Script:
    """Return a script of a token for every text, then the end."""

    def script(submit: wire.Submit) -> Iterable[wire.StreamOut]:
        for number, text in enumerate(texts):
            yield wire.TokenOut(submit.stream, number, text.encode(), text, False, -0.5, [(number, -0.5)])
        usage = wire.UsageOut(len(submit.prompt), len(texts), 0, num_cached)
        yield wire.FinishOut(submit.stream, reason, "", usage, stop, text="".join(texts))

    return script


def fails(failure: wire.Failure, *texts: str) -> Script:
    def script(submit: wire.Submit) -> Iterable[wire.StreamOut]:
        for number, text in enumerate(texts):
            yield wire.TokenOut(submit.stream, number, text.encode(), text, False, None, [])
        usage = wire.UsageOut(len(submit.prompt), len(texts), 0)
        yield wire.FinishOut(submit.stream, FinishReason.FAIL, "", usage, failure=failure)

    return script


def forked(submit: wire.Submit) -> Iterable[wire.StreamOut]:
    """Play two forks of the root; the root ends before the second fork."""
    number = submit.stream

    def say(token: int, text: str) -> wire.TokenOut:
        return wire.TokenOut(number, token, text.encode(), text, False, None, [])

    def end(reason: FinishReason, sampled: int, failure: wire.Failure | None = None) -> wire.FinishOut:
        usage = wire.UsageOut(len(submit.prompt), sampled, 0)
        return wire.FinishOut(number, reason, "", usage, failure=failure, text="ab")

    yield wire.AcceptedOut(number)
    yield say(1, "a")
    yield wire.ForkOut(number, 1, wire.ForkedOut(number, 0, "a", [say(1, "")]))
    yield wire.ForkOut(number, 2, wire.ForkedOut(number, 0, "a", [say(1, "")]))
    yield say(2, "b")
    yield wire.ForkOut(number, 1, say(3, "c"))
    yield wire.ForkOut(number, 2, say(4, "d"))
    yield wire.ForkOut(number, 0, end(FinishReason.STOP, 2))
    yield wire.ForkOut(number, 1, wire.ControlOut(number, "log\n", []))
    yield wire.ForkOut(number, 1, say(5, "e"))
    yield wire.ForkOut(number, 1, end(FinishReason.FAIL, 2, wire.Failure("controller_error", "trap")))
    yield wire.ForkOut(number, 2, say(6, "f"))
    if submit.sampling.seed is None:
        yield wire.ForkOut(number, 2, end(FinishReason.EOS, 2))
        yield end(FinishReason.STOP, 6)
    else:
        yield end(FinishReason.FAIL, 0, wire.Failure("timed_out_error", "too long"))


def silent(submit: wire.Submit) -> Iterable[wire.StreamOut]:
    """Say nothing until the request is aborted."""
    return ()


@dataclass
class FakeEngine:
    """Play `scripts` in turn, the last script again and again. `submitted` and `aborted` record the requests and the
    aborts.

    `calls` maps a method to its result.
    """

    scripts: list[Script] = field(default_factory=lambda: [says("Hello", " there")])
    calls: dict[str, object] = field(default_factory=dict)
    submitted: list[wire.Submit] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    called: list[wire.EngineCall] = field(default_factory=list)
    info: wire.EngineInfo = field(default_factory=lambda: wire.EngineInfo(49152, 2048, 4))

    def __post_init__(self) -> None:
        self.client = EngineClient()
        self.client.connected(self, self.info)
        self.calls.setdefault("cluster", None)
        self.calls.setdefault("ping", None)
        self._ended: set[int] = set()

    def send(self, message: wire.ToEngine) -> None:
        [message] = wire.decode_to_engine(wire.encode([message]))  # a message that cannot be encoded fails here too
        match message:
            case wire.Submit():
                self.submitted.append(message)
                script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
                for event in script(message):
                    self._emit(event)
            case wire.Abort(stream):
                self.aborted.append(stream)
                if stream not in self._ended:
                    self._emit(wire.FinishOut(stream, FinishReason.ABORT, "", wire.UsageOut(0, 0, 0)))
            case wire.EngineCall():
                self.called.append(message)
                self.client.receive(wire.Reply(message.call, self.calls[message.method]))

    def _emit(self, event: wire.StreamOut) -> None:
        if isinstance(event, wire.FinishOut):
            self._ended.add(event.stream)
        self.client.receive(event)
