"""One client's connection: reads messages, runs streams, and reports the state of the server."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from msgspec import UNSET, Raw
from starlette.websockets import WebSocket, WebSocketDisconnect

from aici_base.errors import AiciError, RateLimitError, UsageError
from aici_engine.server.errors import CancelledStreamError
from aici_engine.server.protocols.lmtp.messages import (
    COMMANDS,
    BacktrackItem,
    Buffer,
    Cancel,
    CommandReply,
    ErrorItem,
    Generate,
    MessageError,
    ModelInfo,
    Score,
    ServerEvent,
    TokenItem,
    parse,
)
from aici_engine.server.protocols.lmtp.prompts import Buffers, Parts, tokens_of
from aici_engine.server.protocols.lmtp.send_queue import SendQueue
from aici_engine.server.protocols.lmtp.streams import StreamRunner
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.models import Models
from aici_engine.server.service.served_model import ServedModel
from aici_engine.server.service.service import Service

MAX_STREAMS = 256
_SHORT_MESSAGE = 16 << 10
"""Characters of a message that the event loop parses at once."""
_RETRY_AFTER_S = 1.0
_OF_SERVER = {"server": "aici", "max_streams": MAX_STREAMS, "commands": COMMANDS}
_MOST_TOKENS = 1 << 20
"""Bounds a prompt for a model that was never loaded, while the model's own bound is not known."""

_log = logging.getLogger(__name__)


class Connection:
    """Lives as long as its socket, and ends its streams. Every stream that ends earlier gets exactly one last item."""

    def __init__(self, socket: WebSocket, models: Models, principal: Principal, *, is_greeted: bool) -> None:
        """`is_greeted`: a server that is ready says so first."""
        self._socket = socket
        self._is_greeted = is_greeted
        self._models = models
        self._principal = principal
        self._send_queue = SendQueue()
        self._buffers = {model.name: Buffers() for model in models.all}
        self._streams: dict[bytes, asyncio.Task[None]] = {}
        self._cancelled: set[bytes] = set()
        self._tasks = asyncio.TaskGroup()

    async def serve(self) -> None:
        """Serve the client until the client leaves."""
        await self._socket.accept()
        try:
            async with self._tasks:
                self._tasks.create_task(self._send_queue.send_to(self._send))
                self._greet_unloaded()
                for model in self._models.all:
                    if model.is_kept:
                        self._tasks.create_task(self._tell_of_engine(model))
                self._tasks.create_task(self._tell_of_end())
                await self._read()
        except* WebSocketDisconnect:
            pass

    async def _send(self, text: str) -> None:
        try:
            await self._socket.send_text(text)
        except RuntimeError as error:
            # uvicorn raises RuntimeError for a socket that uvicorn closed, for example after a broken frame.
            raise WebSocketDisconnect(1006) from error

    async def _read(self) -> None:
        while True:
            # A client that does not read what the server sends must wait, too.
            await self._send_queue.room()
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            try:
                if (text := message.get("text")) is None:
                    raise MessageError("LMTP messages are text: this message is binary")
                await self._handle(text)
            except MessageError as error:
                is_last = error.opens_stream and bytes(error.stream_id) not in self._streams
                self._send_queue.put("TOKEN" if is_last else "MSG", ErrorItem.of(error.stream_id, error))
            # Let other tasks run: a new stream must begin before the next message can cancel it.
            await asyncio.sleep(0)

    async def _handle(self, text: str) -> None:
        message = parse(text) if len(text) <= _SHORT_MESSAGE else await asyncio.to_thread(parse, text)
        try:
            match message:
                case Generate() | Score():
                    await self._open(message)
                case Cancel():
                    self._cancel(message)
                case ModelInfo():
                    async with self._models.lease(self._find(message.model).name) as service:
                        self._send_queue.put(
                            "MSG", CommandReply(stream_id=message.stream_id, model_info=_model_info(service))
                        )
                case Buffer():
                    await self._set_buffer(message)
        except AiciError as error:
            self._send_queue.put("MSG", ErrorItem.of(message.stream_id, error))

    # Streams.

    async def _open(self, message: Generate | Score) -> None:
        key = bytes(message.stream_id)
        if key in self._streams:
            # The error is sent as MSG: an error in TOKEN would end the open stream of the same id.
            raise UsageError(f"stream_id {key.decode()} belongs to an open stream", hint="choose another stream_id")
        try:
            playing = await self._prepare(message)
        except AiciError as error:
            self._send_queue.put("TOKEN", ErrorItem.of(message.stream_id, error))
        else:
            self._streams[key] = self._tasks.create_task(playing)

    async def _prepare(self, message: Generate | Score) -> Coroutine[Any, Any, None]:
        """Check a message and reserve its buffer, in the order of the messages. Return the coroutine of the stream."""
        model = self._find(message.model)
        if len(self._streams) >= MAX_STREAMS:
            raise RateLimitError(f"this connection has {MAX_STREAMS} open streams", retry_after_s=_RETRY_AFTER_S)
        await model.admission.count(self._principal)
        buffers, max_len = self._buffers[model.name], model.max_len or _MOST_TOKENS
        prompt = buffers.look_up(message.prompt, max_len=max_len)
        scored = buffers.look_up(message.scored, max_len=max_len) if isinstance(message, Score) else []
        if message.buffer is not None:
            buffers.write(message.buffer)
        return self._play(message, buffers, model, prompt, scored)

    async def _run(
        self, model: ServedModel, message: Generate | Score, prompt: Parts, scored: Parts, tokens: list[int]
    ) -> TokenItem:
        async with self._models.lease(model.name) as service:
            runner = StreamRunner(service, self._principal, say=self._say, queued=self._queued)
            if isinstance(message, Generate):
                return await runner.generate(message, prompt, tokens)
            return await runner.score(message, prompt, scored, tokens)

    async def _play(
        self,
        message: Generate | Score,
        buffers: Buffers,
        model: ServedModel,
        prompt: Parts,
        scored: Parts,
    ) -> None:
        tokens: list[int] = []
        key = bytes(message.stream_id)
        last: TokenItem | ErrorItem
        failed = False
        try:
            last = await self._run(model, message, prompt, scored, tokens)
        except asyncio.CancelledError:
            if key not in self._cancelled:
                raise
            last = ErrorItem.of(message.stream_id, CancelledStreamError("the stream was cancelled"))
        except AiciError as error:
            failed = True
            last = ErrorItem.of(message.stream_id, error)
        except Exception:  # noqa: BLE001 a stream must end with an item, also after a bug
            failed = True
            _log.exception("a bug in aici")
            why = AiciError("the server failed: this is a bug in aici", hint="the server's log has the traceback")
            last = ErrorItem.of(message.stream_id, why)
        self._cancelled.discard(key)
        del self._streams[key]
        if message.buffer is not None:
            buffers.written(message.buffer, None if failed else tokens)
        self._send_queue.put("TOKEN", last)

    def _say(self, item: TokenItem | BacktrackItem) -> None:
        if self._send_queue.is_full:
            raise RateLimitError("the client does not read the server's messages", retry_after_s=_RETRY_AFTER_S)
        self._send_queue.put("TOKEN", item)

    def _cancel(self, message: Cancel) -> None:
        key = bytes(message.stream_id)
        task = self._streams.get(key)
        if task is not None:
            self._cancelled.add(key)
            task.cancel()
        self._send_queue.put("MSG", CommandReply(stream_id=message.stream_id, cancelled=task is not None))

    # Buffers, model info, and events of the server.

    async def _set_buffer(self, message: Buffer) -> None:
        """Set or forget a buffer. Ends before the next message is read, because the next message may use the buffer."""
        model = self._find(message.model)
        buffers = self._buffers[model.name]
        if message.prompt is None:
            buffers.forget(message.buffer)
            self._send_queue.put("MSG", CommandReply(stream_id=message.stream_id, buffer=message.buffer))
            return
        async with self._models.lease(model.name) as service:
            parts = buffers.look_up(message.prompt, max_len=service.info.max_len)
            tokens = await tokens_of(parts, service)
        buffers.write(message.buffer)
        buffers.written(message.buffer, tokens)
        self._send_queue.put(
            "MSG", CommandReply(stream_id=message.stream_id, buffer=message.buffer, num_tokens=len(tokens))
        )

    def _find(self, name: str | None) -> ServedModel:
        return self._models.find(None if name is None else name.removeprefix("llama.cpp:"))

    def _queued(self, stream_id: Raw, position: int) -> None:
        self._send_queue.put("MSG", ServerEvent(event="queued", queued=stream_id, position=position))

    def _greet_unloaded(self) -> None:
        """Greet where the first model is loaded on demand: the greeting has no sizes of the model."""
        first = self._models.default
        if self._is_greeted and not first.is_kept:
            self._send_queue.put("MSG", ServerEvent(event="ready", model_info={"model": first.name, **_OF_SERVER}))

    async def _tell_of_engine(self, model: ServedModel) -> None:
        """Tell when the engine of a model that is always loaded goes and comes back."""
        service = model.service
        if service is None:
            return
        client = service.client
        name = model.name if len(self._models.all) > 1 else UNSET
        is_told = self._is_greeted and model is self._models.default
        while True:
            if not client.is_ready:
                event = ServerEvent(event="unavailable", model=name, retry_after_s=_RETRY_AFTER_S)
                self._send_queue.put("MSG", event)
                await client.up.wait()
                is_told = True
            if is_told:
                self._send_queue.put("MSG", ServerEvent(event="ready", model=name, model_info=_model_info(service)))
            await client.down.wait()

    async def _tell_of_end(self) -> None:
        await self._models.admission.drain_begun.wait()
        self._send_queue.put("MSG", ServerEvent(event="shutdown"))


def _model_info(service: Service) -> dict[str, Any]:
    info, vocabulary = service.info, service.vocabulary
    return {
        "model": service.name,
        "vocab_size": info.vocab_size,
        "max_len": info.max_len,
        "bos_token": vocabulary.bos_token,
        "eos_token": vocabulary.eos_token,
        **_OF_SERVER,
    }
