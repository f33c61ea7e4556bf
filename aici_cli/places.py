"""Where controllers are kept: a server, or without one the store of this machine. Both can do the same."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from aici_base.errors import NotFoundError
from aici_runtime.channels.envelope import Auth
from aici_runtime.modules.registry import Module
from aici_runtime.modules.tags import is_module_id
from aici_runtime.wire import ModuleInfo, TagInfo

if TYPE_CHECKING:
    from aici_controllers.store import Store

_OWNER = Auth("local", is_admin=True)


class Place(Protocol):
    """Names are of tags, or of what is there from the start. All raise NotFoundError for what is not there."""

    def upload(self, wasm: bytes) -> ModuleInfo: ...

    def fetch(self, name: str) -> bytes:
        """Of a module id or a name."""

    def modules(self) -> list[Module]: ...

    def tags(self) -> list[TagInfo]: ...

    def set_tags(self, module_id: str, tags: Sequence[str]) -> list[TagInfo]: ...

    def remove(self, module_id: str, *, force: bool) -> list[str]:
        """Returns the tags that went with it."""

    def remove_tag(self, tag: str) -> None: ...


def place(server: str | None) -> Place:
    if server is not None:
        from aici_cli.remote import Remote

        return Remote(server)
    return Local()


def find(place: Place, name: str) -> str:
    """The id of the module with this id or name."""
    if is_module_id(name):
        return name
    for module in place.modules():
        if name in module.tags:
            return module.module_id
    raise NotFoundError(f"no controller is called {name}", hint="`aici ctrl list` shows those that there are")


class Local:
    """Everything in it is its user's, who may do all."""

    def __init__(self, store: "Store | None" = None) -> None:
        from aici_controllers.store import Store

        self._store = store or Store()

    def upload(self, wasm: bytes) -> ModuleInfo:
        self._store.registry.sweep()
        return self._store.upload(wasm, _OWNER)

    def fetch(self, name: str) -> bytes:
        return self._store.read(name)

    def modules(self) -> list[Module]:
        return self._store.modules()

    def tags(self) -> list[TagInfo]:
        return self._store.tags()

    def set_tags(self, module_id: str, tags: Sequence[str]) -> list[TagInfo]:
        return self._store.set_tags(module_id, tags, _OWNER)

    def remove(self, module_id: str, *, force: bool) -> list[str]:
        return self._store.remove(module_id, _OWNER, force=force)

    def remove_tag(self, tag: str) -> None:
        self._store.remove_tag(tag, _OWNER)


def id_of(wasm: bytes) -> str:
    return hashlib.sha256(wasm).hexdigest()
