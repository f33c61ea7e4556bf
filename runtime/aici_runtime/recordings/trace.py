"""`--trace`: record both channels, one JSON object per line. `replay.py` replays the file.

    {"timestamp": ms, "suff": "" | "-side", "cmd": {...}, "resp": {...} | null}

The first line of a runtime holds its answer to `tokens` and a field `aicirt`: the facts needed to start a runtime
alike. Other lines have extra fields where a replay needs them: `masks`, hashes of the mask rows named in the response;
`raw`, base64 of a message that is not JSON; `implied`, for a module from the store, recorded before its first use. Two
more fields are for readers without the tokenizer: `texts`, the bytes in hex of the tokens that no earlier line had;
`allowed`, how many tokens each mask allows.

A line is written before its response is sent. So every consequence of a response stands after the line, from any
process.
"""

import base64
import hashlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import orjson

from aici_base.errors import AiciError
from aici_runtime import turn_message
from aici_runtime.channels.envelope import ChannelRequest
from aici_runtime.channels.mailbox import Side
from aici_runtime.flags import Settings
from aici_runtime.memory.mask_region import Dtype, mask_bytes
from aici_runtime.memory.shm import Region
from aici_runtime.modules.registry import Registry
from aici_runtime.modules.tags import is_module_id
from aici_runtime.modules.upload import read_upload
from aici_runtime.recordings.token_texts import TokenTexts
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary

FORMAT = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MaskReader:
    """Computes hashes of the masks named in a response."""

    memory: Region
    dtype: Dtype
    vocab_size: int

    def hashes(self, command: Any, response: Any) -> dict[str, list[str | None]]:
        """Return the hashes by sequence; protocol v2 has one hash per branch."""
        if (
            not isinstance(command, dict)
            or command.get("op") not in ("mid_process", "turn_process")
            or response["type"] != "ok"
        ):
            return {}
        data = response["data"]
        results = {seq_id: entry["result"] for seq_id, entry in data["seqs"].items() if not entry["error"]}
        if "first_mask_byte_offset" not in data:
            rows = {str(op["id"]): row for row, op in enumerate(command["ops"])}
            return {seq_id: [self._hash(0, rows[seq_id], self._row_bytes())] for seq_id in results}
        first, size = data["first_mask_byte_offset"], data["mask_num_bytes"]
        slots = {seq_id: [branch["sample_mask"] for branch in results[seq_id]["branches"]] for seq_id in results}
        return {
            seq_id: [None if slot is None else self._hash(first, slot, size) for slot in slots[seq_id]]
            for seq_id in slots
        }

    def num_allowed(self, command: Any, response: Any) -> dict[str, int]:
        """Return how many tokens each mask of bits allows, by sequence; nothing for other masks and for protocol v2.
        Forced tokens have no mask."""
        data = response.get("data")
        is_known = isinstance(command, dict) and command.get("op") in ("mid_process", "turn_process")
        if not is_known or self.dtype != "bool" or not isinstance(data, dict) or "first_mask_byte_offset" in data:
            return {}
        rows = {str(op["id"]): row for row, op in enumerate(command["ops"])}
        asked = [seq_id for seq_id, entry in data["seqs"].items() if not entry["error"] and entry["result"] is None]
        return {
            seq_id: int.from_bytes(self._row(0, rows[seq_id], self._row_bytes()), "little").bit_count()
            for seq_id in asked
        }

    def _row_bytes(self) -> int:
        return (
            mask_bytes(self.vocab_size) if self.dtype == "bool" else self.vocab_size * (4 if self.dtype == "f32" else 2)
        )

    def _hash(self, first: int, row: int, size: int) -> str:
        return hashlib.blake2b(self._row(first, row, size), digest_size=8).hexdigest()

    def _row(self, first: int, row: int, size: int) -> bytes:
        start = first + row * size
        return bytes(self.memory[start : start + size])


class Recorder(Protocol):
    def before(self, request: ChannelRequest, registry: Registry) -> ChannelRequest:
        """Return the request to execute and record."""

    def record(
        self, side: Side, message: bytes, response: bytes | None, command: Mapping[str, object] | None = None
    ) -> None:
        """Record an exchange, before the response is sent. `command`: the executed command, if `before` was called.
        `response` None: the command has no response (`stop`). Raises nothing."""


class NoTrace:
    def before(self, request: ChannelRequest, registry: Registry) -> ChannelRequest:  # noqa: ARG002
        return request

    def record(
        self, side: Side, message: bytes, response: bytes | None, command: Mapping[str, object] | None = None
    ) -> None:
        pass


class Trace:
    """Appends to the file, one line per write. Every process and thread with the file may write, without locks: a fork
    could copy a held lock. If a write fails, the recording ends and nothing else."""

    def __init__(self, path: Path, masks: MaskReader, texts: TokenTexts) -> None:
        """Raise OSError if the file cannot be opened."""
        self._masks = masks
        self._texts = texts
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._known: set[str] = set()  # ids of the modules in the file

    def begin(self, settings: Settings, loaded: LoadedVocabulary) -> None:
        self._write(
            "",
            {"op": "tokens"},
            {"type": "ok", "data": {"vocab_size": loaded.vocab_size, "eos_token_id": loaded.eos_token}},
            aicirt={
                "format": FORMAT,
                "version": version("aici"),
                "flags": settings.as_given,
                "dtype": settings.bias_dtype,
                "tokenizer": settings.tokenizer,
                "tokenizer_sha256": hashlib.sha256(loaded.tokenizer_json.read_bytes()).hexdigest(),
            },
        )

    def record(
        self, side: Side, message: bytes, response: bytes | None, command: Mapping[str, object] | None = None
    ) -> None:
        try:
            answer, asked = _exchange(message, response)
            if command is not None:
                asked = command
            masks = {} if answer is None or side else self._masks.hashes(asked, answer)
            more: dict[str, object] = {"masks": masks} if masks else {}
            if answer is not None and not side:
                more |= self._notes(asked, answer)
            try:
                if asked is None:
                    raise TypeError("no JSON")
                self._write(side, asked, answer, **more)
            except TypeError:  # or nested too deeply to be written again
                self._write(side, None, answer, raw=base64.b64encode(message).decode(), **more)
            if side and answer is not None and answer["type"] == "ok" and asked["op"] == "mk_module":
                self._known.add(answer["data"]["module_id"])
        except Exception:  # noqa: BLE001 a bug; the engine must get its answer all the same
            self._file = None
            _log.exception("the recording ends here")

    def _notes(self, asked: Any, answer: Any) -> dict[str, object]:
        """Return what a reader without the tokenizer needs."""
        notes = {"texts": self._texts.new(asked, answer), "allowed": self._masks.num_allowed(asked, answer)}
        return {name: note for name, note in notes.items() if note}

    def before(self, request: ChannelRequest, registry: Registry) -> ChannelRequest:
        """Record the module named by the request, then return the request with the module id in place of a tag.

        An upload by path becomes an upload by content: the file may be gone when the recording is replayed.
        """
        if request.op == "mk_module" and request.auth.is_admin and "binary" not in request.body:
            return _with_content(request)
        name = request.body.get("module_id")
        if request.op not in ("instantiate", "set_tags") or not isinstance(name, str):
            return request
        try:
            module_id = registry.resolve(name) if request.op == "instantiate" else name
            if is_module_id(module_id):
                self._imply(module_id, registry)
        except AiciError:
            return request  # the runtime will refuse the request
        return ChannelRequest(request.op, request.rid, request.auth, request.body | {"module_id": module_id})

    def _imply(self, module_id: str, registry: Registry) -> None:
        if module_id in self._known:
            return
        wasm = registry.read(module_id)
        self._known.add(module_id)
        self._write(
            "-side",
            {"op": "mk_module", "binary": base64.b64encode(wasm).decode()},
            {"type": "ok", "data": {"module_id": module_id, "wasm_size": len(wasm), "compiled_size": 0, "time": 0}},
            implied=True,
        )

    def _write(self, side: Side, command: object, response: object, **more: object) -> None:
        record: Mapping[str, object] = {"timestamp": time.time() * 1000, "suff": side, "cmd": command, "resp": response}
        line = orjson.dumps({**record, **more}) + b"\n"
        if self._file is None:
            return
        try:
            if os.write(self._file, line) != len(line):  # a single write, or lines of two processes would mix
                raise OSError("no space left for the trace")
        except OSError as error:
            self._file = None  # left open: another thread may be about to write
            _log.warning("the recording ends here: %s", error)


def _with_content(request: ChannelRequest) -> ChannelRequest:
    try:
        wasm = read_upload(str(request.body["path"]))
    except (KeyError, AiciError):
        return request  # the runtime will refuse the request
    body = {name: value for name, value in request.body.items() if name != "path"}
    return ChannelRequest(request.op, request.rid, request.auth, body | {"binary": base64.b64encode(wasm).decode()})


def _exchange(message: bytes, response: bytes | None) -> tuple[Any, Any]:
    """Return a response and its message as JSON values. A turn in binary form gets the form of JSON."""
    if not turn_message.is_turn(message):
        return None if response is None else orjson.loads(response), _parsed(message)
    try:
        fields = turn_message.decode(message)
    except turn_message.MalformedTurnError:
        return None if response is None else orjson.loads(response), None
    command = orjson.loads(orjson.dumps(fields.to_json()))
    if response is None or not turn_message.is_turn(response):
        return None if response is None else orjson.loads(response), command
    return {"type": "ok", "data": turn_message.answer_to_json(response, fields.ops)}, command


def _parsed(message: bytes) -> Any:
    """Return None if the message is not JSON."""
    try:
        return orjson.loads(message)
    except orjson.JSONDecodeError:
        return None
