"""Requests and responses of both channels as JSON, at the engine's end."""

from collections.abc import Mapping
from typing import Any

import orjson

from aici_base.errors import AiciError, UsageError, class_of


def encode(request: Mapping[str, object]) -> bytes:
    """Return a request as JSON. Raises UsageError for lone surrogates, integers beyond 64 bits, and what is too deep.

    >>> encode({"op": "ping"})
    b'{"op":"ping"}'
    """
    try:
        return orjson.dumps(request)
    except TypeError as error:
        raise UsageError(f"not JSON: {error}") from error


def data_of(response: Mapping[str, Any]) -> Any:
    """Return the data of a response, or raise the reported error.

    >>> data_of({"type": "ok", "data": 3})
    3
    """
    if response["type"] == "ok":
        return response["data"]
    text, hint = response["error"], response.get("hint", "")
    kind = class_of(response.get("code", ""))
    if kind is not AiciError:
        raise kind(text, hint=hint, cli_hint=response.get("cli_hint", ""))
    raise AiciError(f"the controller runtime refused a command: {text}", hint=hint)
