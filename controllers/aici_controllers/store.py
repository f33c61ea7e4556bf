"""The controllers of a user or a server: uploaded controllers, and fixed controllers (by default the shipped)."""

import difflib
import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from aici_base.cache_files import default_store_dir
from aici_base.errors import ForbiddenError, NotFoundError, UsageError
from aici_controllers.catalog import SHIPPED, guest_names, guest_path, readme_path
from aici_runtime.channels.envelope import Auth
from aici_runtime.guests import wasmtime_engine
from aici_runtime.modules.custom_sections import custom_section
from aici_runtime.modules.registry import EVERYBODY, Module, Registry
from aici_runtime.modules.room import StorageLimits
from aici_runtime.modules.tags import check_tag
from aici_runtime.quota import Quota
from aici_runtime.wire import ModuleInfo, TagInfo

SHIPPED_BY: Final = "aici"
MODULES: Final = Quota("modules", "", 10_000, 2_000)
STORED_MIB: Final = Quota("MB of modules", "", 50_000, 10_000)
"""The quotas of a server's store. Of one user: the default of the key file."""
README_SECTION: Final = "aici.readme"
"""The custom section of a module with its README: Markdown, in UTF-8."""
_MAX_README_BYTES: Final = 256 << 10
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

    def __init__(
        self,
        folder: Path | None = None,
        *,
        fixed: Mapping[str, Path] | None = None,
        is_bounded: bool = False,
    ) -> None:
        """`folder`: default, the user's store. `fixed`: name → file; default, the shipped controllers.

        `is_bounded`: the store has the quotas `MODULES` and `STORED_MIB`; a user's least recently used modules without
        tags make room for others.
        """
        self.folder = folder or default_store_dir()
        self._is_bounded = is_bounded
        self._fixed = shipped() if fixed is None else dict(fixed)

    @cached_property
    def registry(self) -> Registry:
        key = wasmtime_engine.cache_key()
        if not self._is_bounded:
            return Registry(self.folder, cache_key=key)
        return Registry(self.folder, cache_key=key, modules=MODULES, stored_mib=STORED_MIB, evict=True)

    @cached_property
    def fixed(self) -> Mapping[str, str]:
        """Return name → module id of the fixed controllers."""
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in self._fixed.items()}

    def upload(
        self, binary: bytes, auth: Auth, *, shared: bool = True, limits: StorageLimits | None = None
    ) -> ModuleInfo:
        """Store a module as `Registry.add` does."""
        return self.registry.add(binary, auth, shared=shared, limits=limits)

    def modules(self, auth: Auth = EVERYBODY) -> list[Module]:
        """Return the modules that a user sees: fixed modules by name, then uploaded modules, newest first."""
        stored = {module.module_id: module for module in self.registry.modules(auth)}
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

    def tags(self, auth: Auth = EVERYBODY) -> list[TagInfo]:
        """Return the tags that a user sees, fixed names included, newest first. Without compiled code, `compiled_size`
        is 0."""
        given = [tag for tag in self.registry.get_tags(auth) if tag.tag not in self.fixed]
        return sorted([*given, *self._fixed_tags(auth)], key=lambda info: (-info.updated_at, info.tag))

    def _fixed_tags(self, auth: Auth) -> Iterator[TagInfo]:
        for module in self.modules(auth)[: len(self.fixed)]:
            name = module.tags[0]
            since = int(self._fixed[name].stat().st_mtime)
            yield TagInfo(name, module.module_id, since, SHIPPED_BY, module.wasm_size, module.compiled_size or 0)

    def set_tags(self, module_id: str, tags: Sequence[str], auth: Auth, *, share: bool = False) -> list[TagInfo]:
        """Point all `tags` at the module, or no tag at all. Tags of other modules move to the module.

        `share`: show the module to everybody; only an owner may share.
        """
        check_free(tags, self.fixed)
        if module_id in self.fixed.values():
            self.registry.add(self.read(module_id), Auth(SHIPPED_BY, is_admin=True))
        elif share:
            for tag in tags:
                check_tag(tag, auth)
            self.registry.share(module_id, auth)
        return self.registry.set_tags(module_id, tags, auth)

    def resolve(self, name: str, auth: Auth = EVERYBODY) -> str:
        """Return the id of the module with a name or an id. The hint of NotFoundError has the nearest tag.

        A module that the user does not see is not found.
        """
        if name in self.fixed:
            return self.fixed[name]
        if name in self.fixed.values():
            return name
        try:
            return self.registry.resolve(name, auth)
        except NotFoundError as error:
            near = difflib.get_close_matches(name, [tag.tag for tag in self.tags(auth)], n=1)
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

    def readme(self, module_id: str) -> str:
        """Return the README of a module: of a shipped controller, or in the module's own custom section. Raises
        NotFoundError for a module without a README."""
        for name, fixed_id in self.fixed.items():
            if fixed_id == module_id and name in SHIPPED and (path := readme_path(name)).is_file():
                return path.read_text()
        content = custom_section(self.read(module_id), README_SECTION)
        if content is None:
            raise NotFoundError(
                f"module {module_id} has no README",
                hint=f"`aici ctrl build` puts a project's README.md into the custom section {README_SECTION}",
            )
        return content[:_MAX_README_BYTES].decode(errors="replace")

    def remove(self, module_id: str, auth: Auth, *, force: bool = False) -> list[str]:
        """Remove a module as `Registry.remove` does. Raise ForbiddenError for a fixed module."""
        if module_id in self.fixed.values():
            raise ForbiddenError(f"module {module_id} is one of aici's own")
        return self.registry.remove(module_id, auth, force=force)

    def remove_tag(self, tag: str, auth: Auth) -> None:
        if tag in self.fixed:
            raise ForbiddenError(f"{tag} is a name of aici's own")
        self.registry.remove_tag(tag, auth)
