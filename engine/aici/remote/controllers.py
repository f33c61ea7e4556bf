"""The controllers of a server."""

import hashlib
from collections.abc import Sequence

from aici.errors import AiciError
from aici.remote.address import quote
from aici.remote.connection import Server, encode
from aici_runtime.modules.registry import Module
from aici_runtime.modules.tags import is_module_id
from aici_runtime.wire import ModuleInfo, TagInfo


class RemoteControllers:
    """Methods raise NotFoundError for an unknown module or tag."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def upload(self, wasm: bytes, *, share: bool = False) -> ModuleInfo:
        """`share`: show the controller to all keys of the server."""
        with self._server.json("POST", f"/controllers{'?share=true' if share else ''}", wasm) as told:
            return ModuleInfo(told["module_id"], told["wasm_size"], told["compiled_size"], told["time"])

    def fetch(self, name: str) -> bytes:
        """Return the module with an id or a name. Raise AiciError if the bytes have another id."""
        with self._server.send("GET", f"/controllers/{quote(name)}") as exchange:
            response = exchange.response()
            with exchange.read_errors():
                wasm = response.read()
            module_id = name if is_module_id(name) else response.headers.get("ETag", "").strip('"')
            if hashlib.sha256(wasm).hexdigest() != module_id:
                raise AiciError(f"what {exchange.shown} sent is not the module {module_id}", hint="try again")
            return wasm

    def modules(self) -> list[Module]:
        with self._server.json("GET", "/controllers") as told:
            return [Module(**module | {"tags": tuple(module["tags"])}) for module in told["controllers"]]

    def tags(self) -> list[TagInfo]:
        with self._server.json("GET", "/controllers/tags") as told:
            return [TagInfo(**tag) for tag in told["tags"]]

    def set_tags(self, module_id: str, tags: Sequence[str], *, share: bool = False) -> list[TagInfo]:
        request = {"module_id": module_id, "tags": list(tags)} | ({"share": True} if share else {})
        with self._server.json("POST", "/controllers/tags", encode(request)) as told:
            return [TagInfo(**tag) for tag in told["tags"]]

    def remove(self, module_id: str, *, force: bool) -> list[str]:
        """Return the tags of the module, also removed."""
        path = f"/controllers/{module_id}{'?force=true' if force else ''}"
        with self._server.json("DELETE", path) as told:
            return list(told["tags"])

    def remove_tag(self, tag: str) -> None:
        with self._server.json("DELETE", f"/controllers/tags/{quote(tag)}"):
            pass
