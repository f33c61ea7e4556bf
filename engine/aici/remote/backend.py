"""Requests on a server, as a backend of the front door."""

import json
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from aici.backend import Abort, Call, Cancel, ChatCall, ChatOutcome, Sink, digest
from aici.chat_stream import constrained_chat
from aici.constraints import Constraint
from aici.errors import AiciError, ControllerError, NotFoundError, QuotaError, RateLimitError, UnavailableError
from aici.remote.chat import run_chat
from aici.remote.connection import Exchange, Server, encode
from aici.remote.controllers import RemoteControllers
from aici.remote.run_events import RunEvents
from aici.remote.workers import Workers
from aici_base.errors import DEFAULT_RETRY_AFTER_S
from aici_engine.events import AcceptedEvent, FinishReason
from aici_engine.parameter import Api
from aici_engine.sampling_params import to_request

_MAX_AT_A_TIME: Final = 64
_DATA, _DONE = b"data: ", b"data: [DONE]"


class RemoteBackend:
    """`model` is the model's name in requests. None: any model of the server."""

    def __init__(self, url: str, *, model: str | None, api_key: str | None) -> None:
        self._server = Server(url, api_key=api_key)
        self._asked_model = model
        self._model = model
        self._uploads = _Uploads(self._server)
        self._workers = Workers(_MAX_AT_A_TIME)
        self._runs: weakref.WeakSet[_Run] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = False
        self._stop_workers = weakref.finalize(self, self._workers.close)

    @property
    def model(self) -> str:
        if self._model is None:
            with self._server.json("GET", "/models") as told:
                self._model = str(told["data"][0]["id"])
        return self._model

    def start(self, call: Call, sink: Sink) -> Abort:
        if self._closed:
            raise UnavailableError("the LLM was closed")
        request, module = self._request(call)
        run = _Run(self._server, self._uploads, encode(request), module, call, sink, self._told_model)
        with self._lock:
            self._runs.add(run)
        self._workers.submit(run.work)
        return run.abort

    def chat(self, call: ChatCall, cancel: Cancel) -> ChatOutcome:
        if self._closed:
            raise UnavailableError("the LLM was closed")
        if call.constraint is not None:
            return constrained_chat(self, call, cancel)
        return run_chat(self._server, self._asked_model, call, cancel)

    def close(self) -> None:
        self._closed = True
        with self._lock:
            runs = list(self._runs)
        for run in runs:
            run.abort()
        self._stop_workers()
        self._server.close()

    def _told_model(self, name: str) -> None:
        self._model = name

    def _request(self, call: Call) -> tuple[dict[str, Any], bytes | None]:
        """Return the body of a run, and a module possibly missing on the server."""
        name, module = _named(call.constraint)
        request: dict[str, Any] = {"controller": name, "controller_arg": None, "return_tokens": True}
        if call.constraint is not None:
            request["controller_arg"] = call.constraint.argument
        if isinstance(call.prompt, str):
            request["prompt"] = call.prompt
        else:
            request["messages"] = [message for message in call.prompt if not isinstance(message, int)]
        if self._asked_model is not None:
            request["model"] = self._asked_model
        return request | to_request(Api.REST, call.sampling), module


def _named(constraint: Constraint[Any] | None) -> tuple[str, bytes | None]:
    """Return the controller's name in requests, and the module if the user gave a module."""
    if constraint is None:
        return "none", None
    controller = constraint.controller
    if isinstance(controller, str):
        return controller, None
    return digest(controller), controller


class _Uploads:
    """Uploads a module at most once."""

    def __init__(self, server: Server) -> None:
        self._controllers = RemoteControllers(server)
        self._done: set[str] = set()
        self._lock = threading.Lock()

    def bring(self, wasm: bytes) -> None:
        module_id = digest(wasm)
        with self._lock:
            if module_id not in self._done:
                self._controllers.upload(wasm)
                self._done.add(module_id)


class _Run:
    """One request. `work` belongs to a worker; `abort` is called from any thread."""

    def __init__(
        self,
        server: Server,
        uploads: _Uploads,
        body: bytes,
        module: bytes | None,
        call: Call,
        sink: Sink,
        told_model: Callable[[str], None],
    ) -> None:
        self._server = server
        self._uploads = uploads
        self._body = body
        self._module = module
        self._patient = call.patient
        self._sink = sink
        self._told_model = told_model
        self._events = RunEvents()
        self._aborted = threading.Event()
        self._exchange: Exchange | None = None
        self._lock = threading.Lock()

    def abort(self) -> None:
        with self._lock:
            self._aborted.set()
            if self._exchange is not None:
                self._exchange.break_off()

    def work(self) -> None:
        """Run the request to the end. The sink receives exactly one FinishEvent or error, at last."""
        try:
            self._run()
        except AiciError as error:
            if self._aborted.is_set():
                self._sink(self._events.ended(FinishReason.ABORT))
            elif isinstance(error, ControllerError):
                self._sink(self._events.ended(FinishReason.FAIL, error))
            else:
                self._sink(error)
        except Exception as error:  # noqa: BLE001  a bug, but who waits for the request must hear of its end
            self._sink(AiciError(f"the request failed: {error!r}"))
        finally:
            with self._lock:
                if self._exchange is not None:
                    self._exchange.close()

    def _run(self) -> None:
        exchange = self._started()
        for event in self._events.read(_objects(exchange)):
            if isinstance(event, AcceptedEvent):
                self._told_model(self._events.model)
            self._sink(event)

    def _started(self) -> Exchange:
        """Return the exchange of an accepted run. Upload the module if the server lacks the module."""
        uploaded = self._module is None
        while True:
            exchange = self._send()
            try:
                exchange.response()
            except (RateLimitError, QuotaError) as error:
                wait_s = error.retry_after_s if isinstance(error, RateLimitError) else DEFAULT_RETRY_AFTER_S
                if not self._patient or self._aborted.wait(wait_s):
                    raise
            except NotFoundError:
                if uploaded or self._module is None:
                    raise
                uploaded = True
                self._uploads.bring(self._module)
            else:
                return exchange

    def _send(self) -> Exchange:
        exchange = self._server.send("POST", "/run", self._body)
        with self._lock:
            if self._exchange is not None:
                self._exchange.close()
            self._exchange = exchange
            if self._aborted.is_set():
                exchange.break_off()
        return exchange


def _objects(exchange: Exchange) -> Iterator[Mapping[str, Any]]:
    """Yield the `initial-run`, then each `run`."""
    with exchange.read_errors():
        for line in exchange.lines():
            if line == _DONE:
                return
            if line.startswith(_DATA):
                yield json.loads(line.removeprefix(_DATA))
    raise AiciError(f"{exchange.shown} ended the answer before it was complete")
