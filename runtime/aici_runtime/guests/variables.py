"""Variables shared by the forks of one request: name → (version, bytes). Nothing is ever deleted."""

from typing import Any

import orjson

MAX_BYTES = 64 * 1024 * 1024
"""Limit of names and values of one request together: as much as the default memory limit of a guest."""


class Variables:
    """Executes StorageCmd values (`ReadVar`, `WriteVar`) and returns StorageResp as JSON."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[int, bytes]] = {}
        self._size = 0

    def execute(self, command: dict[str, Any]) -> bytes:
        """Execute a command. Raise ValueError, KeyError or TypeError if the command breaks the format."""
        ((kind, body),) = command.items()
        name = body["name"]
        if not isinstance(name, str):
            raise TypeError("the name of a variable must be a string")
        if kind == "ReadVar":
            return self._read(name)
        if kind == "WriteVar":
            return self._write(name, body)
        raise ValueError(f"unknown storage command {kind}")

    def _read(self, name: str) -> bytes:
        entry = self._values.get(name)
        if entry is None:
            return orjson.dumps({"VariableMissing": {}})
        version, value = entry
        return orjson.dumps({"ReadVar": {"version": version, "value": value.hex()}})

    def _write(self, name: str, body: dict[str, Any]) -> bytes:
        value = bytes.fromhex(body["value"])
        if body["op"] not in ("Set", "Append"):
            raise ValueError(f"unknown op {body['op']}")
        expected = body.get("when_version_is")
        if expected is not None and type(expected) is not int:
            raise TypeError("when_version_is must be an integer")
        version, current = self._values.get(name, (0, b""))
        if expected is not None and expected != version:
            return self._read(name)
        if body["op"] == "Append":
            value = current + value
        size = self._size + len(value) - len(current) + (0 if version else len(name))
        if size > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes of variables")
        self._size = size
        self._values[name] = (version + 1, value)
        return orjson.dumps({"WriteVar": {"version": version + 1}})
