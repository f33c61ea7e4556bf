"""Modules by the sha256 of their bytes, tags that name them, compiled code beside them; all in one folder.

{sha256}.wasm              what was uploaded
{sha256}-sys.json          when and by whom
{sha256}-{key}.cwasm       compiled, for one wasmtime, one configuration and one kind of processor
tags/{tag}.json            TagInfo
"""

import hashlib
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from aici_runtime.cache import write_atomically
from aici_runtime.compiler import NOT_WASM
from aici_runtime.envelope import Auth
from aici_runtime.errors import AiciError, NotFoundError, UnavailableError, UsageError
from aici_runtime.tags import check_tag, is_module_id, is_tag
from aici_runtime.wire import ModuleInfo, TagInfo

COMPILE_TIMEOUT_S = 60.0
"""Six times the original's, whose machines had more cores."""


class Registry:
    """Owns nothing but the folder, which other runtimes may share. Methods are called from any thread."""

    def __init__(self, folder: Path, *, cache_key: str, restricted: bool = False) -> None:
        self._folder = folder
        self._cache_key = cache_key
        self._restricted = restricted
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._tags_lock = threading.Lock()

    def add(self, binary: bytes, auth: Auth) -> ModuleInfo:
        """Store and compile. Idempotent. Raises UsageError for what is not valid Wasm."""
        self._refuse_if_restricted()
        started = time.monotonic()
        module_id = hashlib.sha256(binary).hexdigest()
        source = self._source(module_id)
        with self._locks[module_id]:
            is_new = not (source.is_file() and source.stat().st_size == len(binary))
            if is_new:
                write_atomically(source, binary)
            try:
                compiled = self._compile(module_id)
            except AiciError:
                if is_new:
                    source.unlink(missing_ok=True)
                raise
            if is_new:
                record = {"created": int(time.time()), "auth": asdict(auth)}
                write_atomically(self._folder / f"{module_id}-sys.json", orjson.dumps(record))
        return ModuleInfo(module_id, len(binary), compiled.stat().st_size, int((time.monotonic() - started) * 1000))

    def set_tags(self, module_id: str, tags: Sequence[str], auth: Auth) -> list[TagInfo]:
        """Point all `tags` at the module, or none of them."""
        self._refuse_if_restricted()
        if not is_module_id(module_id):
            raise UsageError("invalid module_id", hint="64 hex digits, as mk_module gives them")
        for tag in tags:
            check_tag(tag, auth)
        compiled = self.compiled(module_id)
        wasm_size, compiled_size = self._source(module_id).stat().st_size, compiled.stat().st_size
        infos = [TagInfo(tag, module_id, int(time.time()), auth.user, wasm_size, compiled_size) for tag in tags]
        with self._tags_lock:
            for info in infos:
                write_atomically(self._tag_file(info.tag), orjson.dumps(asdict(info)))
        return infos

    def get_tags(self) -> list[TagInfo]:
        """All, newest first."""
        infos = [_read_tag(path) for path in (self._folder / "tags").glob("[!.]*.json")]
        return sorted(infos, key=lambda info: (-info.updated_at, info.tag))

    def resolve(self, name: str) -> str:
        """The module id that a module id or a tag means."""
        if is_module_id(name):
            return name
        if name.startswith("gh:"):
            raise UsageError("controllers from GitHub are not supported", hint="download it, then upload the .wasm")
        if not is_tag(name) or not self._tag_file(name).is_file():
            raise NotFoundError(f"tag {name} not found", hint="upload and tag a controller, or list the tags")
        return _read_tag(self._tag_file(name)).module_id

    def compiled(self, module_id: str) -> Path:
        """The file with the compiled code, made now if it is missing."""
        if not self._source(module_id).is_file():
            raise NotFoundError(f"module {module_id} not found", hint="upload it first")
        with self._locks[module_id]:
            return self._compile(module_id)

    def _compile(self, module_id: str) -> Path:
        target = self._folder / f"{module_id}-{self._cache_key}.cwasm"
        if target.is_file():
            return target
        source = self._source(module_id)
        command = [sys.executable, "-P", "-m", "aici_runtime.compiler", str(source), str(target)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as child:
            try:
                # Standard input stays open: the child ends when it closes, which is when we do.
                child.wait(COMPILE_TIMEOUT_S)
            except subprocess.TimeoutExpired as error:
                raise UsageError(f"compiling the module took more than {COMPILE_TIMEOUT_S:.0f} s") from error
            finally:
                child.kill()
            if child.returncode != 0:
                reason = child.stderr.read().decode(errors="replace").strip() if child.stderr else ""
                text = f"cannot compile the module: {reason or f'exit status {child.returncode}'}"
                if child.returncode != NOT_WASM:
                    raise UnavailableError(text)
                raise UsageError(text, hint="is it a WebAssembly module?")
        return target

    def _refuse_if_restricted(self) -> None:
        if self._restricted:
            raise UsageError("module upload disabled", hint="the runtime was started with --restricted")

    def _source(self, module_id: str) -> Path:
        return self._folder / f"{module_id}.wasm"

    def _tag_file(self, tag: str) -> Path:
        return self._folder / "tags" / f"{tag}.json"


def _read_tag(path: Path) -> TagInfo:
    info: dict[str, Any] = orjson.loads(path.read_bytes())
    return TagInfo(**info)
