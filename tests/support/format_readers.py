"""Independent readers of string formats, each a function from a text to whether the text is valid."""

import base64
import json
import re
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import idna
import jsonschema
import jsonschema_rs
from fqdn import FQDN
from pydantic import AnyUrl, TypeAdapter
from ulid import ULID

Reader = Callable[[str], bool]


def works(call: Callable[[str], object]) -> Reader:
    """Return a reader that calls a text valid if `call` raises no error for the text."""

    def read(text: str) -> bool:
        try:
            with warnings.catch_warnings(action="error"):  # `re` warns of patterns that will mean something else
                call(text)
        except (ValueError, re.error, OverflowError, RecursionError, Warning):  # ValueError: also pydantic's and idna's
            return False
        return True

    return read


def validator(name: str) -> Reader:
    """Return the reader of the format `name` by the validator written in Rust."""
    return jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True).is_valid


def pydantic(kind: Any) -> Reader:
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    return works(lambda text: adapter.validate_json(json.dumps(text)))


_is_uuid, _is_mail, _is_url = validator("uuid"), validator("email"), pydantic(AnyUrl)


def matching(pattern: str) -> Reader:
    return lambda text: re.fullmatch(pattern, text) is not None


def date_time(text: str) -> bool:
    return text.isascii() and jsonschema.Draft202012Validator.FORMAT_CHECKER.conforms(text, "date-time")


def url(text: str) -> bool:
    """A URL as browsers read it; whether xn-- is followed by Punycode is not asked."""
    return "xn--" in text.lower() or _is_url(text)


def host(text: str) -> bool:
    return bool(text) and text.isascii() and not text.endswith(".") and FQDN(text, min_labels=1).is_valid


def idn_host(text: str) -> bool:
    return bool(works(idna.encode)(text)) and not text.endswith(".")


def mail(text: str) -> bool:
    """RFC 5321 without quotes: a mailbox up to 64, all up to 254 characters."""
    mailbox, _, domain = text.rpartition("@")
    return len(text) <= 254 and 1 <= len(mailbox) <= 64 and host(domain) and _is_mail(f"{mailbox}@a.de")


def base64_text(text: str) -> bool:
    """Base64 as its encoder writes it."""
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode() == text
    except ValueError:
        return False


def base64url_text(text: str) -> bool:
    """Base64url as its encoder writes it, with or without padding."""
    if "+" in text or "/" in text:
        return False
    bare = text.removesuffix("==") if text.endswith("==") else text.removesuffix("=")
    padded = bare + "=" * (-len(bare) % 4)
    return text in (bare, padded) and base64_text(padded.replace("-", "+").replace("_", "/"))


def jwt(text: str) -> bool:
    """Three parts of base64url; the first two decode to {"...}, the second perhaps to {}."""
    parts = text.split(".")
    if len(parts) != 3 or "=" in text or not all(base64url_text(part) for part in parts):
        return False
    header, payload = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in parts[:2])
    return (
        all(re.fullmatch(rb'\{".+\}', part, re.DOTALL) or part == b"{}" for part in (header, payload))
        and header != b"{}"
    )


def uuid_of(version: int) -> Reader:
    """Return a reader of UUIDs of `version` with the variant of RFC 9562."""

    def read(text: str) -> bool:
        return _is_uuid(text) and uuid.UUID(text).version == version

    return read


def ulid(text: str) -> bool:
    return len(text) == 26 and text.isascii() and works(ULID.from_str)(text)


def network(kind: Callable[[str], object]) -> Reader:
    """Return a reader of an address, a slash, and a plain number of bits."""
    written = matching("[^/]+/(0|[1-9][0-9]*)")
    return lambda text: written(text) and works(kind)(text)
