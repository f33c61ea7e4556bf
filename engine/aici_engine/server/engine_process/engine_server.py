"""The engine's side of the link: takes messages, sends events. Knows nothing about sockets."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from aici_base.errors import AiciError
from aici_base.ids import TokenId
from aici_engine.engine import Engine
from aici_engine.events import (
    AcceptedEvent,
    BacktrackEvent,
    ControlEvent,
    EmbeddingEvent,
    Event,
    FinishEvent,
    FinishReason,
    ForkedEvent,
    ForkEvent,
    Origin,
    ScoreEvent,
    SuspendedEvent,
    Token,
    TokenEvent,
)
from aici_engine.request import ControllerCall, Request, RequestHandle
from aici_engine.server.link import wire

_log = logging.getLogger(__name__)


class EngineServer:
    """Answers `wire` messages with an Engine.

    Call `handle` from one thread. When a request is submitted to a dead engine, `handle` raises the error that ended
    the engine: the process ends, and the supervisor starts a new one. `send` is called from several threads, once per
    message. The owner flushes at the end of every engine step; EngineServer flushes messages outside of steps.
    """

    def __init__(self, engine: Engine, *, send: Callable[[wire.FromEngine], None], flush: Callable[[], None]) -> None:
        self._engine = engine
        self._send = send
        self._flush = flush
        self._handles: dict[int, RequestHandle] = {}
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="aici-call")

    def handle(self, message: wire.ToEngine) -> None:
        match message:
            case wire.Submit():
                self._submit(message)
            case wire.Abort(stream):
                if (handle := self._handles.get(stream)) is not None:
                    handle.abort()
            case wire.Nudge():
                self._engine.nudge(_nothing)
            case wire.EngineCall(call, "ping"):
                self._engine.nudge(lambda: self._reply(wire.Reply(call)))
            case wire.EngineCall():
                self._pool.submit(self._answer, message)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _submit(self, submit: wire.Submit) -> None:
        stream = submit.stream
        call = None if submit.controller is None else ControllerCall(submit.controller, submit.argument)
        request = Request(
            prompt=[TokenId(token) for token in submit.prompt],
            sampling=submit.sampling,
            controller=call,
            score_from=submit.score_from,
            pooling=submit.pooling,
            priority=submit.priority,
            cache_salt=submit.salt,
            share=submit.share,
            prediction=[TokenId(token) for token in submit.prediction],
        )

        def sink(event: Event) -> None:
            self._send(_out(stream, event))
            if isinstance(event, FinishEvent):
                # The engine's thread may get here before `_submit` stores the handle; `_submit` then checks `ended`.
                ended.append(True)
                self._handles.pop(stream, None)

        ended: list[bool] = []
        try:
            handle = self._engine.submit(request, sink=sink)
        except AiciError as error:
            self._send(_refused(stream, len(submit.prompt), error))
            self._flush()
            self._engine.check_alive()
            return
        self._handles[stream] = handle
        if ended:
            self._handles.pop(stream, None)

    def _answer(self, call: wire.EngineCall) -> None:
        try:
            reply = wire.Reply(call.call, self._call(call.method))
        except Exception as error:  # noqa: BLE001 every EngineCall must get a Reply
            if not isinstance(error, AiciError):
                _log.exception("call %s failed", call.method)
            reply = wire.Reply(call.call, failure=wire.Failure.of(error))
        self._reply(reply)

    def _reply(self, reply: wire.Reply) -> None:
        self._send(reply)
        self._flush()

    def _call(self, method: str) -> object:
        if method == "stats":
            return dict(self._engine.get_stats())
        if method == "cluster":
            return self._engine.pipeline_status()
        raise AiciError(f"the engine has no method {method}")


def _nothing() -> None: ...


def _refused(stream: int, prompt_len: int, error: AiciError) -> wire.FinishOut:
    return wire.FinishOut(
        stream, FinishReason.FAIL, "", wire.UsageOut(prompt_len, 0, 0), failure=wire.Failure.of(error)
    )


def _out(stream: int, event: Event) -> wire.StreamOut:
    match event:
        case AcceptedEvent():
            return wire.AcceptedOut(stream)
        case ScoreEvent(scores):
            return wire.ScoreOut(
                stream, [(s.token_id, s.logprob, [(int(t), p) for t, p in s.top_logprobs]) for s in scores]
            )
        case EmbeddingEvent(vector):
            return wire.EmbeddingOut(stream, vector.astype("<f4").tobytes())
        case ForkEvent(fork, inner):
            return wire.ForkOut(stream, fork, _sequence_out(stream, inner))
        case _:
            return _sequence_out(stream, event)


def _sequence_out(stream: int, event: Event) -> wire.SequenceOut:
    """Return the wire form of an event that any fork may have."""
    match event:
        case TokenEvent(token, text):
            return _token_out(stream, token, text)
        case BacktrackEvent(num_tokens):
            return wire.BacktrackOut(stream, num_tokens)
        case SuspendedEvent():
            return wire.SuspendedOut(stream)
        case ControlEvent(logs, storage):
            return wire.ControlOut(stream, logs, list(storage))
        case ForkedEvent(parent, text, tokens):
            return wire.ForkedOut(stream, parent, text, [_token_out(stream, token, "") for token in tokens])
        case FinishEvent():
            usage, timings = event.usage, event.timings
            return wire.FinishOut(
                stream,
                event.reason,
                event.tail,
                wire.UsageOut(usage.prompt_tokens, usage.sampled_tokens, usage.ff_tokens, usage.cached_tokens),
                event.stop,
                timings.started_s,
                timings.first_token_s,
                timings.total_s,
                None if event.error is None else wire.Failure.of(event.error),
                event.text,
            )
        case _:
            raise TypeError(f"{type(event).__name__} is no event of a fork")


def _token_out(stream: int, token: Token, text: str) -> wire.TokenOut:
    top = [(int(t), p) for t, p in token.top_logprobs]
    is_forced = token.origin is Origin.FORCED
    return wire.TokenOut(stream, token.token_id, token.data, text, is_forced, token.logprob, top, token.explanation)
