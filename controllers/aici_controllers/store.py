"""The controllers of a user or a server: uploaded controllers, and fixed controllers (by default the shipped)."""

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
_RESERVED: Final = ("none", "tags", "structural_tag")
"""`none` in a request means no controller; `tags` is a path of REST in the place of a name; `structural_tag` stands for
the controller `grammar`."""


def shipped() -> dict[str, Path]:
    """Return name → file of the shipped controllers."""
    return {name: guest_path(name) for name in guest_names()}


def check_free(tags: Iterable[str], fixed: Container[str] = SHIPPED) -> None:
    """Raise UsageError for a reserved name, or for the name of a fixed or shipped controller."""
    for tag in tags:
        if tag in fixed or tag in SHIPPED or tag in _RESERVED:
            raise UsageError(f"{tag} is a name of aici's own", hint="choose another one")


class Store:
    """A registry with fixed controllers. A fixed controller cannot be removed, and keeps the name.

    Any thread may call the methods. Methods that change the store take the user as `auth`.
    """

    def __init__(self, folder: Path | None = None, *, fixed: Mapping[str, Path] | None = None) -> None:
        """`folder`: default, the user's store. `fixed`: name → file; default, the shipped controllers."""
        self.folder = folder or default_store_dir()
        self._fixed = shipped() if fixed is None else dict(fixed)

    @cached_property
    def registry(self) -> Registry:
        return Registry(self.folder, cache_key=wasmtime_engine.cache_key())

    @cached_property
    def fixed(self) -> Mapping[str, str]:
        """Return name → module id of the fixed controllers."""
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in self._fixed.items()}

    def upload(self, binary: bytes, auth: Auth) -> ModuleInfo:
        """Store a module. Raise UsageError unless the module is a controller."""
        return self.registry.add(binary, auth)

    def modules(self) -> list[Module]:
        """Return all modules: fixed modules by name, then uploaded modules, newest first."""
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
        """Return all tags, fixed names included, newest first. Without compiled code, `compiled_size` is 0."""
        given = [tag for tag in self.registry.get_tags() if tag.tag not in self.fixed]
        return sorted([*given, *self._fixed_tags()], key=lambda info: (-info.updated_at, info.tag))

    def _fixed_tags(self) -> Iterator[TagInfo]:
        for module in self.modules()[: len(self.fixed)]:
            name = module.tags[0]
            since = int(self._fixed[name].stat().st_mtime)
            yield TagInfo(name, module.module_id, since, SHIPPED_BY, module.wasm_size, module.compiled_size or 0)

    def set_tags(self, module_id: str, tags: Sequence[str], auth: Auth) -> list[TagInfo]:
        """Point all `tags` at the module, or no tag at all. Tags of other modules move to the module."""
        check_free(tags, self.fixed)
        if module_id in self.fixed.values():
            self.registry.add(self.read(module_id), Auth(SHIPPED_BY, is_admin=True))
        return self.registry.set_tags(module_id, tags, auth)

    def resolve(self, name: str) -> str:
        """Return the id of the module with a name or an id. The hint of NotFoundError has the nearest tag."""
        if name in self.fixed:
            return self.fixed[name]
        try:
            return self.registry.resolve(name)
        except NotFoundError as error:
            near = difflib.get_close_matches(name, [tag.tag for tag in self.tags()], n=1)
            hint = f"did you mean {near[0]}?" if near else error.hint
            cli_hint = f"{hint} `aici ctrl list` lists the controllers" if near else error.cli_hint
            raise NotFoundError(error.message, hint=hint, cli_hint=cli_hint) from error

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
        """Remove a module as `Registry.remove` does. Raise ForbiddenError for a fixed module."""
        if module_id in self.fixed.values():
            raise ForbiddenError(f"module {module_id} is one of aici's own")
        return self.registry.remove(module_id, auth, force=force)

    def remove_tag(self, tag: str, auth: Auth) -> None:
        if tag in self.fixed:
            raise ForbiddenError(f"{tag} is a name of aici's own")
        self.registry.remove_tag(tag, auth)
