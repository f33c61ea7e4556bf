"""The tokenizer of an engine, loaded by the first call that needs the tokenizer."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aici_base.ids import TokenId
from aici_engine.model_files import read_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class ModelTokenizer:
    """Converts text to tokens, and knows the names of tokens. Any thread may call the methods.

    The engine behind a server gets tokens and never converts text: the tokenizer would be in memory twice, here and in
    the API process. `added`: the names of special tokens, known without the tokenizer. `path` was checked before.
    """

    def __init__(self, path: Path, added: Mapping[TokenId, str]) -> None:
        self._path = path
        self._added = added
        self._ids = {name: token for token, name in added.items()}
        self._lock = threading.Lock()
        self._tokenizer: Tokenizer | None = None

    def encode(self, text: str) -> list[TokenId]:
        """Return the tokens of `text`, the default special tokens at the ends included."""
        return [TokenId(token) for token in self._loaded().encode(text).ids]

    def name_of(self, token: TokenId) -> str:
        """Return the token as the tokenizer writes it; for an unknown token, its number."""
        known = self._added.get(token)
        return known if known is not None else self._loaded().id_to_token(token) or str(token)

    def token_named(self, name: str) -> TokenId | None:
        """Return the token that the tokenizer writes as `name`."""
        if name in self._ids:
            return self._ids[name]
        token = self._loaded().token_to_id(name)
        return None if token is None else TokenId(token)

    def _loaded(self) -> "Tokenizer":
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = read_tokenizer(self._path)
            return self._tokenizer
