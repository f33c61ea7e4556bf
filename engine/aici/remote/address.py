"""Addresses and keys of servers."""

import urllib.parse
from typing import Final

from aici.errors import UsageError

DEFAULT_URL: Final = "http://127.0.0.1:4242"
NOT_THERE: Final = "is `aici serve` running there? The server answers once the model is loaded"


def split_url(url: str) -> tuple[str, dict[str, str]]:
    """Return the address of `/v1`, and the headers for the key behind `#key=`. Raise UsageError for no address."""
    try:
        parts = urllib.parse.urlsplit(url)
        parts.netloc.encode("idna")
        _ = parts.port  # a wrong number raises ValueError
        is_plain = parts.path.isascii() and " " not in parts.path
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"{url!r} is no server's address: {error}", hint=f"give one like {DEFAULT_URL}") from error
    if not is_plain or parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url} is no server's address", hint=f"give one like {DEFAULT_URL}")
    if "@" in parts.netloc:
        raise UsageError("a server's address has no user name", hint="append a key of the server to the URL: #key=KEY")
    path = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
    key = urllib.parse.parse_qs(parts.fragment).get("key")
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, "", "")), key_headers(key[0]) if key else {}


def key_headers(key: str) -> dict[str, str]:
    if not (isinstance(key, str) and key.isascii() and key.isprintable()):
        raise UsageError("the API key is no line of ASCII", hint="is the key complete, and nothing else in it?")
    return {"Authorization": f"Bearer {key}", "api-key": key}


def quote(name: str) -> str:
    """Return a name as a part of a path."""
    return urllib.parse.quote(name, safe="")
