"""Converts text to tokens and back."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from aici_base.errors import UsageError
from aici_base.tokenizer.tokens import read_vocabulary, tokenizer_file
from aici_engine.model_files import read_settings, read_tokenizer

_PLAIN = "\ue000"
"""A private-use character. Before the name of a special token, it marks the name as plain text."""


class ModelVocabulary:
    """The model's tokenizer. `token_bytes[id]` is empty for special tokens; `longest_token` is a number of bytes.

    `eos_token` and `bos_token` come from the tokenizer's configuration, `settings`.
    """

    def __init__(self, model_dir: Path) -> None:
        path = tokenizer_file(str(model_dir))
        vocabulary = read_vocabulary(path.read_bytes())
        self.token_bytes = vocabulary.token_bytes
        self.longest_token = max(map(len, self.token_bytes), default=0)
        self._tokenizer = read_tokenizer(path)
        specials = [token.content for token in self._tokenizer.get_added_tokens_decoder().values() if token.special]
        # Longest names first: one name may be the beginning of another. Without special tokens the regex never matches.
        names = "|".join(re.escape(name) for name in sorted(specials, key=len, reverse=True)) or r"(?!)"
        self._specials = re.compile(names)
        self._plain_specials = re.compile(f"{_PLAIN}({names})")
        self._plain_names = self._as_plain_text(specials)
        self.settings = config = read_settings(model_dir / "tokenizer_config.json")
        eos = self._special(config.get("eos_token"))
        self.eos_token = int(vocabulary.eos_token) if eos is None else eos
        self.bos_token = self._special(config.get("bos_token"))

    def plain(self, text: str) -> str:
        """Return `text` with its special-token names marked as plain text for `encode`.

        A user who writes `<|im_end|>` in a message does not end the turn, wherever a template puts the message.
        """
        return self._specials.sub(lambda name: _PLAIN + name[0], text)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of `text`. Names of special tokens become special tokens, unless `plain` marked them."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the text is not valid Unicode: {error}") from error
        if _PLAIN in text:
            return list(self._encode_marked(text, add_special_tokens))
        return self._tokens(text, add_special_tokens)

    def _encode_marked(self, text: str, add_special_tokens: bool) -> Iterator[int]:
        for number, part in enumerate(self._plain_specials.split(text)):
            if number % 2:
                yield from self._plain_names[part]
            else:
                yield from self._tokens(part, add_special_tokens and number == 0)

    def _tokens(self, text: str, add_special_tokens: bool) -> list[int]:
        """Return the tokens of `text`. Other calls of the library hold the GIL or compute offsets."""
        ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
        return ids

    def _as_plain_text(self, names: Iterable[str]) -> dict[str, list[int]]:
        """Return the tokens that write each name letter by letter. A copy of the tokenizer for such texts would hold
        the GIL for as long as the tokenizer takes to load."""
        self._tokenizer.encode_special_tokens = True
        try:
            return {name: self._tokens(name, add_special_tokens=False) for name in names}
        finally:
            self._tokenizer.encode_special_tokens = False

    def name_of(self, token: int) -> str:
        """Return the token as the tokenizer writes it: for a special token, its name."""
        return self._tokenizer.id_to_token(token) or ""

    def special_token(self, name: str) -> int | None:
        """Return the special token called `name`; None if a text like `name` consists of ordinary tokens."""
        token = self._tokenizer.token_to_id(name)
        return token if token is not None and not self.bytes_of(token) else None

    def bytes_of(self, token: int) -> bytes:
        return self.token_bytes[token] if 0 <= token < len(self.token_bytes) else b""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of `tokens`. Special tokens add nothing; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.bytes_of, tokens)).decode("utf-8", "replace")

    def decode_with_names(self, tokens: Sequence[int]) -> str:
        """Return the text of `tokens`. Special tokens are written by their names."""
        return b"".join(self.bytes_of(token) or self.name_of(token).encode() for token in tokens).decode(
            "utf-8", "replace"
        )

    def _special(self, name: object) -> int | None:
        text = name.get("content") if isinstance(name, dict) else name
        return self._tokenizer.token_to_id(text) if isinstance(text, str) else None
