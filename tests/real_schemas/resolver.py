"""The targets of `$ref` within a schema."""

from typing import Any
from urllib.parse import unquote, urldefrag, urljoin


class Resolver:
    """Finds targets by JSON pointer, anchor and `$id`. A target that is not found is the schema that allows all."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._base = ""
        self._by_uri: dict[str, Any] = {}
        if isinstance(root, dict):
            self._base = _text(root, "$id") or _text(root, "id")
        self._collect(root, self._base, 0)

    def _collect(self, node: Any, base: str, depth: int) -> None:
        if isinstance(node, list):
            for inner in node:
                self._collect(inner, base, depth + 1)
        elif isinstance(node, dict):
            name = _text(node, "$id") or _text(node, "id")
            if name:
                uri = urljoin(base, name)
                self._by_uri.setdefault(uri.rstrip("#"), node)
                base = urldefrag(uri).url
            if anchor := _text(node, "$anchor"):
                self._by_uri.setdefault(f"{base}#{anchor}", node)
            for inner in node.values():
                self._collect(inner, base, depth + 1)

    def target(self, reference: str, _from: Any = None) -> Any:
        if reference.startswith("#/") or reference == "#":
            return self._at(self._root, reference[1:])
        uri = urljoin(self._base, reference)
        if uri.rstrip("#") in self._by_uri:
            return self._by_uri[uri.rstrip("#")]
        document, fragment = urldefrag(uri)
        return self._at(self._by_uri.get(document, True), fragment)

    def _at(self, node: Any, pointer: str) -> Any:
        for step in pointer.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and key.isdigit() and int(key) < len(node):
                node = node[int(key)]
            elif isinstance(node, dict) and key in node:
                node = node[key]
            else:
                return True
        return node


def _text(node: dict[str, Any], key: str) -> str:
    value = node.get(key)
    return value if isinstance(value, str) else ""
