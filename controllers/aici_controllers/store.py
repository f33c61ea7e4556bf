"""The controllers that a user or a server has: those that were uploaded, and those that are there from the start."""

import difflib
import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from aici_base.cache_files import default_store_dir
from aici_base.errors import ForbiddenError, NotFoundError, UsageError
from aici_controllers.catalog import SHIPPED, guest_names, guest_path
from aici_runtime.channels.envelope import Auth
from aici_runtime.guests import wasmtime_engine
from aici_runtime.modules.registry import Module, Registry
from aici_runtime.wire import ModuleInfo, TagInfo

SHIPPED_BY: Final = "aici"
_RESERVED: Final = ("none", "tags")
"""What a request names that wants no controller; what stands in the place of a name in the paths of REST."""


def shipped() -> dict[str, Path]:
    """Name → file."""
    return {name: guest_path(name) for name in guest_names()}


def check_free(tags: Iterable[str], fixed: Container[str] = SHIPPED) -> None:
    """UsageError for a name that no controller of a user's can have."""
    for tag in tags:
        if tag in fixed or tag in SHIPPED or tag in _RESERVED:
            raise UsageError(f"{tag} is a name of aici's own", hint="choose another one")


class Store:
    """A registry in which `fixed`, name → file, cannot be removed, and whose names no other controller can have.

    Methods are called from any thread; those that change something say who asks.
    """

    def __init__(self, folder: Path | None = None, *, fixed: Mapping[str, Path] | None = None) -> None:
        """Without a folder, the user's; without `fixed`, what ships."""
        self.folder = folder or default_store_dir()
        self._fixed = shipped() if fixed is None else dict(fixed)

    @cached_property
    def registry(self) -> Registry:
        return Registry(self.folder, cache_key=wasmtime_engine.cache_key())

    @cached_property
    def fixed(self) -> Mapping[str, str]:
        """Name → module id."""
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in self._fixed.items()}

    def upload(self, binary: bytes, auth: Auth) -> ModuleInfo:
        """Raises UsageError for what is no controller."""
        return self.registry.add(binary, auth)

    def modules(self) -> list[Module]:
        """Those that are fixed by their names, then the newest first."""
        stored = {module.module_id: module for module in self.registry.modules()}
        fixed = list(self._fixed_modules(stored))
        return [*fixed, *(stored[module_id] for module_id in stored if module_id not in self.fixed.values())]

    def _fixed_modules(self, stored: Mapping[str, Module]) -> Iterator[Module]:
        for name, module_id in self.fixed.items():
            known = stored.get(module_id)
            yield Module(
                module_id=module_id,
                wasm_size=self._fixed[name].stat().st_size,
                compiled_size=known.compiled_size if known else None,
                created=None,
                created_by=SHIPPED_BY,
                tags=(name, *(tag for tag in (known.tags if known else ()) if tag not in self.fixed)),
            )

    def tags(self) -> list[TagInfo]:
        """All, also the names that are fixed, newest first. `compiled_size` of one that never ran here is 0."""
        given = [tag for tag in self.registry.get_tags() if tag.tag not in self.fixed]
        return sorted([*given, *self._fixed_tags()], key=lambda info: (-info.updated_at, info.tag))

    def _fixed_tags(self) -> Iterator[TagInfo]:
        for module in self.modules()[: len(self.fixed)]:
            name = module.tags[0]
            since = int(self._fixed[name].stat().st_mtime)
            yield TagInfo(name, module.module_id, since, SHIPPED_BY, module.wasm_size, module.compiled_size or 0)

    def set_tags(self, module_id: str, tags: Sequence[str], auth: Auth) -> list[TagInfo]:
        """Point all `tags` at the module, or none of them. A tag that another one has goes over."""
        check_free(tags, self.fixed)
        if module_id in self.fixed.values():
            self.registry.add(self.read(module_id), Auth(SHIPPED_BY, is_admin=True))
        return self.registry.set_tags(module_id, tags, auth)

    def resolve(self, name: str) -> str:
        """The id of the module that is called `name`, which may be its id. NotFoundError names a tag that is near."""
        if name in self.fixed:
            return self.fixed[name]
        try:
            return self.registry.resolve(name)
        except NotFoundError as error:
            near = difflib.get_close_matches(name, [tag.tag for tag in self.tags()], n=1)
            raise NotFoundError(error.message, hint=f"did you mean {near[0]}?" if near else error.hint) from error

    def read(self, name: str) -> bytes:
        module_id = self.resolve(name)
        try:
            return self.registry.read(module_id)
        except NotFoundError:
            for fixed, fixed_id in self.fixed.items():
                if fixed_id == module_id:
                    return self._fixed[fixed].read_bytes()
            raise

    def remove(self, module_id: str, auth: Auth, *, force: bool = False) -> list[str]:
        """As `Registry.remove`."""
        if module_id in self.fixed.values():
            raise ForbiddenError(f"module {module_id} is one of aici's own")
        return self.registry.remove(module_id, auth, force=force)

    def remove_tag(self, tag: str, auth: Auth) -> None:
        if tag in self.fixed:
            raise ForbiddenError(f"{tag} is a name of aici's own")
        self.registry.remove_tag(tag, auth)
