"""API keys: a TOML file with a table per key. The table says what the key's holder may do.

[keys.alice]
key = "sk-..."                  # or sha256 = "...": of the key, in hexadecimal digits
controllers = ["regex", "my-.*"]  # regexes of whole names; without it: all
upload = false                  # no new controllers, no tags
uploads_per_hour = 100
max_modules = 500               # uploaded controllers in the store
max_stored_mib = 2000           # of uploaded controllers, with compiled code
templates = true                # may send chat templates, which may compute for long
requests_per_minute = 60
max_concurrency = 4             # sequences at a time; forks above it wait
weight = 2                      # of the engine, twice the share of a key without it
min_priority = -1               # requests may be sooner by one step; without it: none but an admin's
tokens_per_minute = 20000       # of prompts and answers
guest_cpu_per_minute = 30       # seconds of processor time of controllers
cache_pages = 200               # pages of the cache that the key's sequences may hold
admin = true                    # sees everybody's controllers, and may set tags that belong to others
"""

import base64
import binascii
import difflib
import hashlib
import hmac
import logging
import math
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from starlette.requests import HTTPConnection

from aici_base.errors import UnauthorizedError, UsageError
from aici_engine.server.service.admission import DEFAULT_STORAGE, Principal
from aici_runtime.modules.room import StorageLimits

_FIELDS: Mapping[str, type] = {
    "key": str,
    "sha256": str,
    "admin": bool,
    "upload": bool,
    "uploads_per_hour": int,
    "max_modules": int,
    "max_stored_mib": int,
    "templates": bool,
    "controllers": list,
    "requests_per_minute": int,
    "max_concurrency": int,
    "weight": int,
    "min_priority": int,
    "tokens_per_minute": int,
    "guest_cpu_per_minute": float,
    "cache_pages": int,
}
_HINT = 'write a table per key: [keys.NAME] and key = "..."'
_UPLOADS_PER_HOUR: Final = 200
_DIGEST = re.compile(r"[0-9a-f]{64}")

_log = logging.getLogger(__name__)


class Keys:
    """Finds a connection's Principal by its API key. Without a file, everybody is `Principal()`, with all rights."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._principals = {} if path is None else _read(path)

    def reload(self) -> None:
        """Read the file again. If the file is invalid, keep the old keys and log the reason."""
        if self._path is None:
            return
        try:
            self._principals = _read(self._path)
        except UsageError as error:
            _log.error("the API keys stay as they were: %s", error)
        else:
            _log.info("%d API keys", len(self._principals))

    def principal_named(self, name: str) -> Principal | None:
        """Return the Principal of the key `name`; None if the key is gone."""
        known = [Principal()] if self._path is None else self._principals.values()
        return next((principal for principal in known if principal.name == name), None)

    def principal_of(self, connection: HTTPConnection) -> Principal:
        """Return the Principal of a connection. Raises UnauthorizedError for a missing or unknown key."""
        if self._path is None:
            return Principal()
        shown = _shown(connection)
        if shown is None:
            raise UnauthorizedError("no API key", hint="send the header Authorization: Bearer KEY")
        digest = _digest(shown.encode())
        found = None
        for known, principal in self._principals.items():
            # Compare with every key, in constant time: the time taken must not reveal a key.
            if hmac.compare_digest(known, digest):
                found = principal
        if found is None:
            raise UnauthorizedError("the API key is not known")
        return found


def _shown(connection: HTTPConnection) -> str | None:
    """Return the key that a connection shows.

    OpenAI's clients send a Bearer token, LMTP clients the password of Basic authentication, Anthropic's clients
    `x-api-key`, AICI's clients `api-key`. A WebSocket may carry the key as the query parameter `api_key`.
    """
    kind, _, credentials = connection.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return credentials.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return None
    header = connection.headers.get("x-api-key") or connection.headers.get("api-key")
    # Queries end up in logs and histories. A key in the query is accepted only for WebSockets, because a browser cannot
    # set their headers.
    return header or (connection.query_params.get("api_key") if connection.scope["type"] == "websocket" else None)


def _digest(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


def _read(path: Path) -> dict[str, Principal]:
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        raise UsageError(f"there is no file of API keys at {path}", hint=_HINT) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the API keys of {path}: {error}") from error
    try:
        mode = path.stat().st_mode
        document = tomllib.loads(text)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read the API keys of {path}: {error}") from error
    if mode & stat.S_IWOTH:
        raise UsageError(f"every user of this machine can write to {path}", hint=f"chmod 600 {path}")
    tables = document.get("keys")
    if set(document) != {"keys"} or not isinstance(tables, dict) or not tables:
        raise UsageError(f"{path} is not a file of API keys", hint=_HINT)
    principals: dict[str, Principal] = {}
    for name, table in tables.items():
        digest, principal = _principal(f"{path}: keys.{name}", name, table)
        if digest in principals:
            raise UsageError(f"{path}: keys.{name} and keys.{principals[digest].name} are the same key")
        principals[digest] = principal
    if mode & stat.S_IROTH and any("key" in table for table in tables.values()):
        _log.warning("every user of this machine can read %s: chmod 600 it, or write sha256 instead of key", path)
    return principals


def _principal(where: str, name: str, table: object) -> tuple[str, Principal]:
    if not isinstance(table, dict):
        raise UsageError(f"{where} is not a table", hint=f"write [keys.{name}]")
    _check_fields(where, table)
    if ("key" in table) == ("sha256" in table):
        raise UsageError(f"{where} needs either key or sha256")
    if table.get("key") == "":
        raise UsageError(f"{where}.key is empty")
    digest = _digest(table["key"].encode()) if "key" in table else table["sha256"].lower()
    if not _DIGEST.fullmatch(digest):
        raise UsageError(f"{where}.sha256 must have 64 hexadecimal digits")
    return digest, Principal(
        name=name,
        has_key=True,
        is_admin=table.get("admin", False),
        may_upload=table.get("upload", True),
        has_own_controllers=True,
        uploads_per_hour=table.get("uploads_per_hour", None if table.get("admin", False) else _UPLOADS_PER_HOUR),
        storage=StorageLimits(
            modules=table.get("max_modules", DEFAULT_STORAGE.modules),
            stored_mib=table.get("max_stored_mib", DEFAULT_STORAGE.stored_mib),
        ),
        may_template=table.get("templates", False),
        controllers=_patterns(where, table["controllers"]) if "controllers" in table else None,
        requests_per_minute=table.get("requests_per_minute"),
        max_concurrency=table.get("max_concurrency"),
        weight=table.get("weight", 1),
        tokens_per_minute=table.get("tokens_per_minute"),
        guest_cpu_per_minute=table.get("guest_cpu_per_minute"),
        cache_pages=table.get("cache_pages"),
        min_priority=table.get("min_priority", None if table.get("admin", False) else 0),
    )


def _check_fields(where: str, table: Mapping[str, Any]) -> None:
    for field, value in table.items():
        kind = _FIELDS.get(field)
        if kind is None:
            near = difflib.get_close_matches(field, _FIELDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known fields: {', '.join(_FIELDS)}"
            raise UsageError(f"{where}.{field} is not a known field", hint=hint)
        if type(value) is not kind and not (kind is float and type(value) is int):
            # The message does not show the value, because the value may be a key.
            raise UsageError(f"{where}.{field} must be of type {kind.__name__}, not {type(value).__name__}")
        if isinstance(value, int) and kind is int and value < 1 and field != "min_priority":
            raise UsageError(f"{where}.{field} must be 1 or more, not {value}")
        if isinstance(value, int | float) and kind is float and not 0 < value < math.inf:
            raise UsageError(f"{where}.{field} must be a number greater than 0, not {value}")


def _patterns(where: str, texts: list[object]) -> tuple[re.Pattern[str], ...]:
    patterns = []
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(f"{where}.controllers must be a list of strings: {text!r} is not a string")
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            raise UsageError(f"{where}.controllers: {text!r} is not a valid regex: {error}") from error
    return tuple(patterns)
