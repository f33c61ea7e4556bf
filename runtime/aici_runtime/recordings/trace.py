"""`--trace`: both channels, one JSON object a line, which `replay.py` plays again.

    {"timestamp": ms, "suff": "" | "-side", "cmd": {...}, "resp": {...} | null}

A runtime begins with what it would answer to `tokens`, and `aicirt`: what it takes to start another one like it. Lines
have more where a replay needs it: `masks`, hashes of the rows that a response speaks of; `raw`, base64 of a message
that is no JSON; `implied`, for a module that came from the store: its bytes stand before its first use.

A line is written before its response is sent, so what depends on a response comes after it, from whichever process.
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
from aici_runtime.channels.envelope import Request
from aici_runtime.channels.mailbox import Side
from aici_runtime.flags import Settings
from aici_runtime.memory.mask_region import Dtype, mask_bytes
from aici_runtime.memory.shm import Region
from aici_runtime.modules.registry import Registry
from aici_runtime.modules.tags import is_module_id
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary

FORMAT = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MaskReader:
    """The mask region, for hashes of what a response says is in it."""

    memory: Region
    dtype: Dtype
    vocab_size: int

    def hashes(self, command: Any, response: Any) -> dict[str, list[str | None]]:
        """By sequence; one for each of its branches."""
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

    def _row_bytes(self) -> int:
        return (
            mask_bytes(self.vocab_size) if self.dtype == "bool" else self.vocab_size * (4 if self.dtype == "f32" else 2)
        )

    def _hash(self, first: int, row: int, size: int) -> str:
        start = first + row * size
        return hashlib.blake2b(self.memory[start : start + size], digest_size=8).hexdigest()


class Recorder(Protocol):
    def before(self, request: Request, registry: Registry) -> Request:
        """The request as it is to be carried out and recorded."""

    def record(
        self, side: Side, message: bytes, response: bytes | None, command: Mapping[str, object] | None = None
    ) -> None:
        """`command`: what was carried out, if `before` was asked. `response` None: there is none, to `stop`. To be
        called before it is sent. Raises nothing."""


class NoTrace:
    def before(self, request: Request, registry: Registry) -> Request:  # noqa: ARG002
        return request

    def record(
        self, side: Side, message: bytes, response: bytes | None, command: Mapping[str, object] | None = None
    ) -> None:
        pass


class Trace:
    """Appends to the file, from every process and thread that has it, a line at a time and without locks, which a fork
    could find taken. A file that cannot be written ends the recording and nothing else."""

    def __init__(self, path: Path, masks: MaskReader) -> None:
        """Raises OSError."""
        self._masks = masks
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._known: set[str] = set()  # modules in the file

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
            answer = None if response is None else orjson.loads(response)
            asked = _parsed(message) if command is None else command
            masks = {} if answer is None or side else self._masks.hashes(asked, answer)
            more = {"masks": masks} if masks else {}
            try:
                if asked is None:
                    raise TypeError("no JSON")
                self._write(side, asked, answer, **more)
            except TypeError:  # or nested too deeply to be written again
                self._write(side, None, answer, raw=base64.b64encode(message).decode(), **more)
            if side and answer is not None and answer["type"] == "ok" and asked["op"] == "mk_module":
                self._known.add(answer["data"]["module_id"])
        except Exception:  # noqa: BLE001  a bug; the engine must get its answer all the same
            self._file = None
            _log.exception("the trace ends here")

    def before(self, request: Request, registry: Registry) -> Request:
        """With the module's id for its tag, after its bytes have been recorded."""
        name = request.body.get("module_id")
        if request.op not in ("instantiate", "set_tags") or not isinstance(name, str):
            return request
        try:
            module_id = registry.resolve(name) if request.op == "instantiate" else name
            if is_module_id(module_id):
                self._imply(module_id, registry)
        except AiciError:
            return request  # which will be refused
        return Request(request.op, request.rid, request.auth, request.body | {"module_id": module_id})

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
            if os.write(self._file, line) != len(line):  # in one piece, or lines of two processes would mix
                raise OSError("it has no more room")
        except OSError as error:
            self._file = None  # and left open: another thread may be about to write
            _log.warning("the trace ends here: %s", error)


def _parsed(message: bytes) -> Any:
    """None for what is no JSON."""
    try:
        return orjson.loads(message)
    except orjson.JSONDecodeError:
        return None
