"""Modules by the sha256 of their bytes, tags that name modules, and compiled code beside them."""

import hashlib
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from aici_base.cache_files import sync, write_atomically
from aici_base.errors import ForbiddenError, InUseError, NotFoundError, UnavailableError, UsageError
from aici_runtime.channels.envelope import Auth
from aici_runtime.channels.mailbox import MIB
from aici_runtime.modules.compile_failures import CompileFailures
from aici_runtime.modules.compiler import compile_module
from aici_runtime.modules.module_files import ModuleFiles, content_of, copy_sparse, size_of
from aici_runtime.modules.tags import check_tag, is_module_id, is_tag, owns
from aici_runtime.quota import Quota
from aici_runtime.wire import ModuleInfo, TagInfo

_NO_QUOTA = Quota("modules", "", sys.maxsize, sys.maxsize)
_QUOTA_HINT = "remove controllers no longer needed"
_QUOTA_CLI_HINT = f"{_QUOTA_HINT}: aici ctrl rm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """`compiled_size`: None while no code for this machine exists. `created`: Unix seconds; None if unknown."""

    module_id: str
    wasm_size: int
    compiled_size: int | None
    created: int | None
    created_by: str | None
    tags: tuple[str, ...]


class Registry:
    """Owns only the folder, which other processes may share. Methods may be called from any thread.

    `compile` compiles a Wasm file into a code file, whole or not at all.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cache_key: str,
        restricted: bool = False,
        modules: Quota = _NO_QUOTA,
        stored_mib: Quota = _NO_QUOTA,
        compile: Callable[[Path, Path], None] = compile_module,  # noqa: A002
    ) -> None:
        self._files = ModuleFiles(folder)
        self._cache_key = cache_key
        self._restricted = restricted
        self._module_quota = modules
        self._stored_quota = stored_mib
        self._compile = compile
        self._failures = CompileFailures()
        self._turns: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def sweep(self) -> None:
        """Remove the leftovers of killed processes."""
        self._files.sweep()

    def add(self, binary: bytes, auth: Auth) -> ModuleInfo:
        """Compile and store a module. Idempotent: a stored module keeps its first uploader.

        Raise UsageError if the module is not a controller (remembered for an hour), QuotaError if a quota is exceeded.
        """
        self._refuse_if_restricted()
        started = time.monotonic()
        module_id = hashlib.sha256(binary).hexdigest()
        with self._turns[module_id]:
            size = self._sizes(module_id)
            if size is None or size[0] != len(binary) or not size[1]:
                if size is None:
                    self._check_room(len(binary), auth)
                size = self._bring_in(module_id, binary, auth)
        return ModuleInfo(module_id, *size, int((time.monotonic() - started) * 1000))

    def _bring_in(self, module_id: str, binary: bytes, auth: Auth) -> tuple[int, int]:
        record = {"created": int(time.time()), "auth": asdict(auth)}
        with self._files.arriving() as new:
            (new / "wasm").write_bytes(binary)
            (new / "record").write_bytes(orjson.dumps(record))
            self._compile_once(module_id, new)
            for path in new.iterdir():
                sync(path)
            size = (new / "code").stat().st_size
            with self._files.changing():
                if self._sizes(module_id) is None:
                    self._check_room(len(binary) + size, auth)
                (new / "code").rename(self._code(module_id))
                if self._sizes(module_id) is None:
                    (new / "record").rename(self._files.record(module_id))
                (new / "wasm").rename(self._files.wasm(module_id))
                sync(self._files.folder)
        return len(binary), size

    def _compile_once(self, module_id: str, new: Path) -> None:
        """Compile `new`/wasm into `new`/code. Raise UsageError at once if this failed within the last hour."""
        self._failures.check(module_id)
        try:
            self._compile(new / "wasm", new / "code")
        except UsageError as error:
            self._failures.note(module_id, error)
            raise

    def _check_room(self, size_bytes: int, auth: Auth) -> None:
        """Raise QuotaError if another module of `size_bytes` exceeds a quota."""
        modules = self.modules()
        own = [module for module in modules if module.created_by == auth.user]
        self._module_quota.check(len(modules) + 1, len(own) + 1, hint=_QUOTA_HINT, cli_hint=_QUOTA_CLI_HINT)
        self._check_stored(size_bytes, modules, own)

    def _check_stored(self, size_bytes: int, modules: Sequence[Module], own: Sequence[Module]) -> None:
        snapshots = self._files.snapshot_sizes()
        total, of_user = (
            size_bytes + sum(m.wasm_size + (m.compiled_size or 0) + snapshots.get(m.module_id, 0) for m in ms)
            for ms in (modules, own)
        )
        self._stored_quota.check(-(-total // MIB), -(-of_user // MIB), hint=_QUOTA_HINT, cli_hint=_QUOTA_CLI_HINT)

    def compiled(self, module_id: str) -> Path:
        """Return the file with the compiled code; compile the module first if the file is missing."""
        if self._sizes(module_id) is None:
            raise _no_module(module_id)
        code = self._code(module_id)
        with self._turns[module_id]:
            if not code.is_file():
                with self._files.arriving() as new:
                    (new / "wasm").write_bytes(self.read(module_id))
                    self._compile_once(module_id, new)
                    sync(new / "code")
                    with self._files.changing():
                        if self._sizes(module_id) is None:
                            raise _no_module(module_id)
                        (new / "code").rename(code)
        return code

    def snapshot(self, module_id: str, vocabulary_id: str) -> Path:
        """Return the file of a guest that has read the vocabulary. The file may be missing."""
        return self._files.snapshot(module_id, self._cache_key, vocabulary_id)

    def keep_snapshot(self, module_id: str, vocabulary_id: str, content: int) -> Path:
        """Store the content of a file descriptor as snapshot.

        Raise QuotaError if a quota is exceeded, NotFoundError if the module was removed.
        """
        path = self.snapshot(module_id, vocabulary_id)
        with self._files.arriving() as new:
            copy_sparse(content, new / "memory", os.fstat(content).st_size)
            sync(new / "memory")
            with self._files.changing():
                modules = self.modules()
                owner = next((m.created_by for m in modules if m.module_id == module_id), None)
                size = (new / "memory").stat().st_blocks * 512
                self._check_stored(size, modules, [m for m in modules if m.created_by == owner])
                if self._sizes(module_id) is None:
                    raise _no_module(module_id)
                (new / "memory").rename(path)
        return path

    def is_compiled(self, module_id: str) -> bool:
        return bool((self._sizes(module_id) or (0, 0))[1])

    def has(self, module_id: str) -> bool:
        return self._sizes(module_id) is not None

    def read(self, module_id: str) -> bytes:
        content = content_of(self._files.wasm(module_id))
        if content is None:
            raise _no_module(module_id)
        return content

    def modules(self) -> list[Module]:
        """Return all modules, newest first."""
        names: dict[str, list[str]] = defaultdict(list)
        for tag in self._read_tags().values():
            names[tag.module_id].append(tag.tag)
        found = []
        for module_id in self._files.module_ids():
            if (size := self._sizes(module_id)) is None:
                continue  # removed a moment ago
            created, user = self._record(module_id)
            found.append(
                Module(
                    module_id=module_id,
                    wasm_size=size[0],
                    compiled_size=size[1] or None,
                    created=created,
                    created_by=user,
                    tags=tuple(sorted(names[module_id])),
                )
            )
        return sorted(found, key=lambda module: (-(module.created or 0), module.module_id))

    def remove(self, module_id: str, auth: Auth, *, force: bool = False) -> list[str]:
        """Remove a module and return its tags, which are removed too; tags require `force`. Running guests continue.

        Raise InUseError if tags name the module and `force` is not given. Raise ForbiddenError unless the user owns the
        module and its tags, or is an admin.
        """
        self._refuse_if_restricted()
        _check_id(module_id)
        with self._files.changing():
            if self._sizes(module_id) is None:
                raise _no_module(module_id)
            if not auth.is_admin and self._record(module_id)[1] != auth.user:
                raise ForbiddenError(f"module {module_id} was uploaded by another user")
            known = self._read_tags()
            names = sorted(tag.tag for tag in known.values() if tag.module_id == module_id)
            if names and not force:
                raise InUseError(
                    f"module {module_id} has the tags {', '.join(names)}",
                    hint="remove the tags first, or force the removal",
                )
            for name in names:
                _check_owner(name, auth)
                del known[name]
            if names:
                self._write_tags(known)
            self._files.remove(module_id)
            sync(self._files.folder)
        return names

    def set_tags(self, module_id: str, tags: Sequence[str], auth: Auth) -> list[TagInfo]:
        """Point all `tags` at the module, or none if any tag is refused."""
        self._refuse_if_restricted()
        _check_id(module_id)
        for tag in tags:
            check_tag(tag, auth)
        self.compiled(module_id)
        with self._files.changing():
            if (size := self._sizes(module_id)) is None:
                raise _no_module(module_id)
            now = int(time.time())
            infos = [TagInfo(tag, module_id, now, auth.user, *size) for tag in tags]
            self._write_tags(self._read_tags() | {info.tag: info for info in infos})
        return infos

    def remove_tag(self, tag: str, auth: Auth) -> None:
        """Remove a tag; the module stays. Raise ForbiddenError if the user does not own the tag."""
        self._refuse_if_restricted()
        with self._files.changing():
            known = self._read_tags()
            if known.pop(tag, None) is None:
                raise _no_tag(tag)
            _check_owner(tag, auth)
            self._write_tags(known)

    def get_tags(self) -> list[TagInfo]:
        """Return all tags, newest first."""
        return sorted(self._read_tags().values(), key=lambda info: (-info.updated_at, info.tag))

    def resolve(self, name: str) -> str:
        """Return the module id for a module id or a tag."""
        if is_module_id(name):
            return name
        if name.startswith("gh:"):
            raise UsageError(
                "controllers from GitHub are not supported", hint="download the .wasm file, then upload the file"
            )
        if not is_tag(name) or (info := self._read_tags().get(name)) is None:
            raise _no_tag(name)
        return info.module_id

    def _code(self, module_id: str) -> Path:
        return self._files.compiled(module_id, self._cache_key)

    def _sizes(self, module_id: str) -> tuple[int, int] | None:
        """Return the bytes of Wasm and of code (0 if not compiled); None for an unknown module."""
        wasm_size = size_of(self._files.wasm(module_id))
        return None if wasm_size is None else (wasm_size, size_of(self._code(module_id)) or 0)

    def _record(self, module_id: str) -> tuple[int | None, str | None]:
        content = content_of(self._files.record(module_id))
        if content is None:
            return None, None
        record = orjson.loads(content)
        return record["created"], record["auth"]["user"]

    def _read_tags(self) -> dict[str, TagInfo]:
        content = content_of(self._files.tags)
        if content is None:
            return {}
        try:
            return {tag: TagInfo(**info) for tag, info in orjson.loads(content).items()}
        except (orjson.JSONDecodeError, AttributeError, TypeError) as error:
            hint = "repair the file, or remove the file and tag the controllers again"
            raise UnavailableError(f"{self._files.tags} is damaged: {error}", hint=hint) from error

    def _write_tags(self, known: Mapping[str, TagInfo]) -> None:
        """Write all tags; call inside `changing`."""
        document = orjson.dumps({tag: asdict(info) for tag, info in known.items()})
        write_atomically(self._files.tags, document)

    def _refuse_if_restricted(self) -> None:
        if self._restricted:
            raise UsageError(
                "module upload disabled",
                hint="use a controller that the runtime already has",
                cli_hint="the runtime was started with --restricted",
            )


def _check_id(module_id: str) -> None:
    if not is_module_id(module_id):
        raise UsageError("invalid module_id", hint="a module id is 64 hex digits, as mk_module returns")


def _check_owner(tag: str, auth: Auth) -> None:
    if not owns(auth, tag):
        raise ForbiddenError(f"the tag {tag} belongs to another user")


def _no_module(module_id: str) -> NotFoundError:
    return NotFoundError(
        f"module {module_id} not found",
        hint="upload the module first",
        cli_hint="`aici ctrl list` lists the controllers",
    )


def _no_tag(tag: str) -> NotFoundError:
    return NotFoundError(
        f"tag {tag} not found",
        hint="upload and tag a controller, or list the tags",
        cli_hint="`aici ctrl list` lists the controllers, `aici ctrl upload` adds one",
    )
