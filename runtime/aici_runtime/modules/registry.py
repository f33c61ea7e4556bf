"""Modules by the sha256 of their bytes, tags that name modules, and compiled code beside them.

A module that is not shared does not exist for a user who has not uploaded it: the same bytes of two users are stored
once and belong to both. `EVERYBODY` sees all modules.
"""

import hashlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import orjson

from aici_base.cache_files import mark_used, sync, write_atomically
from aici_base.errors import ForbiddenError, InUseError, NotFoundError, UnavailableError, UsageError
from aici_runtime.channels.envelope import Auth
from aici_runtime.modules.compile_failures import CompileFailures
from aici_runtime.modules.compiler import compile_module
from aici_runtime.modules.module_files import ModuleFiles, content_of, copy_sparse, size_of
from aici_runtime.modules.owners import Ownership
from aici_runtime.modules.room import NO_QUOTA, Claim, Room, StorageLimits
from aici_runtime.modules.tags import check_tag, is_module_id, is_tag, owns
from aici_runtime.quota import Quota
from aici_runtime.wire import ModuleInfo, TagInfo

EVERYBODY: Final = Auth("", is_admin=True)
"""The caller of methods that ask for no user: sees everything, as upstream AICI's users do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """`compiled_size`: None while no code for this machine exists. `created`: Unix seconds; None if unknown."""

    module_id: str
    wasm_size: int
    compiled_size: int | None
    created: int | None
    created_by: str | None
    tags: tuple[str, ...]
    shared: bool = True


class Registry:
    """Owns only the folder, which other processes may share. Methods may be called from any thread.

    `compile` compiles a Wasm file into a code file, whole or not at all. `modules`, `stored_mib`, `evict`: see `Room`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cache_key: str,
        restricted: bool = False,
        modules: Quota = NO_QUOTA,
        stored_mib: Quota = NO_QUOTA,
        compile: Callable[[Path, Path], None] = compile_module,  # noqa: A002
        evict: bool = False,
    ) -> None:
        self._files = ModuleFiles(folder)
        self._cache_key = cache_key
        self._restricted = restricted
        self._room = Room(
            self._files,
            modules=modules,
            stored_mib=stored_mib,
            evict=evict,
            ownership=self._ownership,
            tagged=lambda: {tag.module_id for tag in self._read_tags().values()},
        )
        self._compile = compile
        self._failures = CompileFailures()
        self._turns: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def sweep(self) -> None:
        """Remove the leftovers of killed processes."""
        self._files.sweep()

    def add(
        self,
        binary: bytes,
        auth: Auth,
        *,
        shared: bool = True,
        limits: StorageLimits | None = None,
        compile_later: bool = False,
    ) -> ModuleInfo:
        """Compile and store a module. Idempotent: a stored module gets another owner.

        `shared`: everybody may see the module. `limits`: of the user. `compile_later`: `compiled` will compile the
        module, which is known to be a controller. Raise UsageError if the module is not a controller (remembered for an
        hour), QuotaError if a quota is exceeded.
        """
        self._refuse_if_restricted()
        started = time.monotonic()
        module_id = hashlib.sha256(binary).hexdigest()
        claim = Claim(auth, limits)
        with self._turns[module_id]:
            size = self._sizes(module_id)
            is_whole = size is not None and content_of(self._files.wasm(module_id)) == binary
            if size is None or not is_whole or not (size[1] or compile_later):
                if size is None:
                    self._room.check(len(binary), claim)
                size = self._bring_in(module_id, binary, claim, shared=shared, compile_later=compile_later)
            else:
                self._note_owner(module_id, claim, shared=shared)
        return ModuleInfo(module_id, *size, int((time.monotonic() - started) * 1000))

    def _bring_in(
        self, module_id: str, binary: bytes, claim: Claim, *, shared: bool, compile_later: bool
    ) -> tuple[int, int]:
        with self._files.arriving() as new:
            (new / "wasm").write_bytes(binary)
            if not compile_later:
                self._compile_once(module_id, new)
            for path in new.iterdir():
                sync(path)
            size = size_of(new / "code") or 0
            with self._files.changing():
                if self._sizes(module_id) is None:
                    self._room.make(len(binary) + size, claim)
                if size:
                    (new / "code").rename(self._code(module_id))
                self._write_owner(module_id, claim.auth, shared=shared, is_new=self._sizes(module_id) is None)
                (new / "wasm").rename(self._files.wasm(module_id))
                sync(self._files.folder)
        return len(binary), size_of(self._code(module_id)) or 0

    def _note_owner(self, module_id: str, claim: Claim, *, shared: bool) -> None:
        """Make the user an owner of a stored module, and share the module if `shared`."""
        mark_used(self._code(module_id))
        known = self._ownership(module_id)
        if known.is_owned_by(claim.auth) and known.is_shared >= shared:
            return
        with self._files.changing():
            if not known.is_owned_by(claim.auth):
                self._room.make(self._files.stored_sizes()[module_id], claim)
            self._write_owner(module_id, claim.auth, shared=shared)

    def _write_owner(self, module_id: str, auth: Auth, *, shared: bool, is_new: bool = False) -> None:
        """Write the record of a module; call inside `changing`."""
        known = Ownership(is_shared=False) if is_new else self._ownership(module_id)
        owned = known.with_owner(auth, int(time.time()), shared=shared)
        write_atomically(self._files.record(module_id), owned.document())

    def _compile_once(self, module_id: str, new: Path) -> None:
        """Compile `new`/wasm into `new`/code. Raise UsageError at once if this failed within the last hour."""
        self._failures.check(module_id)
        try:
            self._compile(new / "wasm", new / "code")
        except UsageError as error:
            self._failures.note(module_id, error)
            raise

    def compiled(self, module_id: str) -> Path:
        """Return the file with the compiled code; compile the module first if the file is missing."""
        if self._sizes(module_id) is None:
            raise _no_module(module_id)
        code = self._code(module_id)
        with self._turns[module_id]:
            if not size_of(code):  # an empty file is what a disk leaves after a loss of power
                with self._files.arriving() as new:
                    (new / "wasm").write_bytes(self._whole(module_id))
                    self._compile_once(module_id, new)
                    sync(new / "code")
                    with self._files.changing():
                        if self._sizes(module_id) is None:
                            raise _no_module(module_id)
                        (new / "code").rename(code)
        mark_used(code)
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
                self._room.check_addition((new / "memory").stat().st_blocks * 512, module_id)
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

    def _whole(self, module_id: str) -> bytes:
        """Return the bytes of a module. Raise UnavailableError if the file has other bytes."""
        binary = self.read(module_id)
        if hashlib.sha256(binary).hexdigest() != module_id:
            raise UnavailableError(
                f"the stored module {module_id} is damaged",
                hint="upload it again; a server stores its own controllers again when it starts",
            )
        return binary

    def check_visible(self, module_id: str, auth: Auth) -> None:
        """Raise NotFoundError for a module that does not exist, or does not for this user."""
        if self._sizes(module_id) is None or not self._ownership(module_id).is_visible_to(auth):
            raise _no_module(module_id)

    def modules(self, auth: Auth = EVERYBODY) -> list[Module]:
        """Return all modules that a user sees, newest first. A module of several owners is the asking owner's own."""
        names: dict[str, list[str]] = defaultdict(list)
        for tag in self._read_tags().values():
            names[tag.module_id].append(tag.tag)
        found = []
        for module_id in self._files.module_ids():
            if (size := self._sizes(module_id)) is None:
                continue  # removed a moment ago
            owned = self._ownership(module_id)
            if not owned.is_visible_to(auth):
                continue
            user = auth.user if owned.is_owned_by(auth) else owned.first.user if owned.first else None
            found.append(
                Module(
                    module_id=module_id,
                    wasm_size=size[0],
                    compiled_size=size[1] or None,
                    created=None if user is None else owned.owners.get(user),
                    created_by=user,
                    tags=tuple(sorted(names[module_id])),
                    shared=owned.is_shared,
                )
            )
        return sorted(found, key=lambda module: (-(module.created or 0), module.module_id))

    def remove(self, module_id: str, auth: Auth, *, force: bool = False) -> list[str]:
        """Remove a module and return its tags, which are removed too; tags require `force`. Running guests continue.

        A module with other owners stays theirs, with their tags. Raise InUseError if tags name the module and `force`
        is not given. Raise ForbiddenError unless the user owns the module and its tags, or is an admin.
        """
        self._refuse_if_restricted()
        _check_id(module_id)
        with self._files.changing():
            self.check_visible(module_id, auth)
            owned = self._ownership(module_id)
            if not auth.is_admin and not owned.is_owned_by(auth):
                raise ForbiddenError(f"module {module_id} was uploaded by another user")
            has_others = not auth.is_admin and len(owned.owners) > 1
            known = self._read_tags()
            names = sorted(tag.tag for tag in known.values() if tag.module_id == module_id)
            if has_others:
                names = [name for name in names if owns(auth, name)]
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
            if has_others:
                write_atomically(self._files.record(module_id), owned.without_owner(auth.user).document())
            else:
                self._files.remove(module_id)
            sync(self._files.folder)
        return names

    def share(self, module_id: str, auth: Auth) -> None:
        """Show a module to everybody. Raise ForbiddenError unless the user owns the module, or is an admin."""
        self._refuse_if_restricted()
        with self._files.changing():
            self.check_visible(module_id, auth)
            owned = self._ownership(module_id)
            if owned.is_shared:
                return
            if not auth.is_admin and not owned.is_owned_by(auth):
                raise ForbiddenError(f"module {module_id} was uploaded by another user")
            write_atomically(self._files.record(module_id), replace(owned, is_shared=True).document())

    def set_tags(self, module_id: str, tags: Sequence[str], auth: Auth) -> list[TagInfo]:
        """Point all `tags` at the module, or none if any tag is refused."""
        self._refuse_if_restricted()
        _check_id(module_id)
        for tag in tags:
            check_tag(tag, auth)
        self.check_visible(module_id, auth)
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
            info = known.pop(tag, None)
            if info is None or not self._ownership(info.module_id).is_visible_to(auth):
                raise _no_tag(tag)
            _check_owner(tag, auth)
            self._write_tags(known)

    def get_tags(self, auth: Auth = EVERYBODY) -> list[TagInfo]:
        """Return all tags of modules that a user sees, newest first."""
        tags = [info for info in self._read_tags().values() if self._ownership(info.module_id).is_visible_to(auth)]
        return sorted(tags, key=lambda info: (-info.updated_at, info.tag))

    def resolve(self, name: str, auth: Auth = EVERYBODY) -> str:
        """Return the module id for a module id or a tag. Raise NotFoundError if the user does not see the module."""
        if is_module_id(name):
            if not auth.is_admin:
                self.check_visible(name, auth)
            return name
        if name.startswith("gh:"):
            raise UsageError(
                "controllers from GitHub are not supported", hint="download the .wasm file, then upload the file"
            )
        if not is_tag(name) or (info := self._read_tags().get(name)) is None:
            raise _no_tag(name)
        if not self._ownership(info.module_id).is_visible_to(auth):
            raise _no_tag(name)
        return info.module_id

    def _code(self, module_id: str) -> Path:
        return self._files.compiled(module_id, self._cache_key)

    def _sizes(self, module_id: str) -> tuple[int, int] | None:
        """Return the bytes of Wasm and of code (0 if not compiled); None for an unknown module."""
        wasm_size = size_of(self._files.wasm(module_id))
        return None if wasm_size is None else (wasm_size, size_of(self._code(module_id)) or 0)

    def _ownership(self, module_id: str) -> Ownership:
        return Ownership.read(content_of(self._files.record(module_id)))

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
