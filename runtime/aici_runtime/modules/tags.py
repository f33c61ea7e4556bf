"""The rules for tag names and module ids, and for the users who may set a tag."""

import re

from aici_base.errors import UsageError
from aici_runtime.channels.envelope import Auth

_MODULE_ID = re.compile(r"[0-9a-f]{64}")
_MAX_TAG_BYTES = 50
_MAX_HEX_CHARS = 20


def is_module_id(text: str) -> bool:
    return _MODULE_ID.fullmatch(text) is not None


def check_tag(tag: str, auth: Auth) -> None:
    """Raise UsageError if the name is invalid or not the user's. A user without admin rights owns tags with the prefix
    `{user}.`."""
    if len(tag.encode(errors="surrogatepass")) > _MAX_TAG_BYTES:
        raise UsageError("tag name too long", hint=f"at most {_MAX_TAG_BYTES} bytes")
    if len(tag) > _MAX_HEX_CHARS and all(c in "0123456789abcdefABCDEF" for c in tag):
        raise UsageError("tag name looks too hex", hint="the name could be taken for a module id")
    if not is_tag(tag):
        raise UsageError("tag name not identifier", hint="a letter, then letters, digits, `_`, `-` or `.`")
    if not owns(auth, tag):
        raise UsageError("permission denied for tag name", hint=f"begin the name with `{auth.user}.`")


def owns(auth: Auth, tag: str) -> bool:
    return auth.is_admin or tag.startswith(f"{auth.user}.")


def is_tag(tag: str) -> bool:
    """Whether the text is a valid tag. Valid tags contain no separator and no leading dot and are short, so a tag
    cannot name a file elsewhere."""
    return (
        tag[:1].isalpha()
        and all(c.isalpha() or c in "0123456789_-." for c in tag[1:])
        and len(tag.encode()) <= _MAX_TAG_BYTES
    )
