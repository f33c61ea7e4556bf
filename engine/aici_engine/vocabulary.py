"""Converts text to tokens and back."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer

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
        # The only call that releases the GIL and computes no offsets.
        return list(self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids)

    def _encode_marked(self, text: str, add_special_tokens: bool) -> Iterator[int]:
        for number, part in enumerate(self._plain_specials.split(text)):
            tokenizer = self._plain_tokenizer if number % 2 else self._tokenizer
            yield from tokenizer.encode(part, add_special_tokens=add_special_tokens and number == 0).ids

    @cached_property
    def _plain_tokenizer(self) -> Tokenizer:
        """A copy of the tokenizer without special tokens."""
        tokenizer = Tokenizer.from_str(self._tokenizer.to_str())
        tokenizer.encode_special_tokens = True
        return tokenizer

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
