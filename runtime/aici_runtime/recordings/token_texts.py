"""The texts of the tokens in a recording, for readers that have no tokenizer."""

from collections.abc import Iterator
from typing import Any

from aici_base.ids import TokenId
from aici_runtime.tokenizer import trie


class TokenTexts:
    """Remembers which tokens have been told. For the recorder of one runtime."""

    def __init__(self, blob: bytes) -> None:
        """`blob`: the token trie of guest ABI v1."""
        self._blob = blob
        self._told: set[int] = set()

    def new(self, command: Any, response: Any) -> dict[str, str]:
        """Return the bytes, in hex, of the tokens of a step that no earlier call has returned, by token."""
        found = {token for token in _tokens(command, response) if token not in self._told}
        self._told |= found
        return {str(token): trie.token_bytes(self._blob, TokenId(token)).hex() for token in sorted(found)}


def _tokens(command: Any, response: Any) -> Iterator[int]:
    """Yield the tokens that the engine has appended, and those that the guests append. Other messages have none."""
    if not isinstance(command, dict) or not isinstance(response.get("data"), dict):
        return
    for op in command.get("post_ops") or ():
        yield from op.get("tokens") or ()
    for group in ("pre_seqs", "seqs"):
        for entry in (response["data"].get(group) or {}).values():
            yield from ((entry or {}).get("result") or {}).get("ff_tokens") or ()
