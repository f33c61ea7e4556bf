"""Text to tokens and back, in the API process."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from aici_runtime.errors import UsageError
from aici_runtime.tokens import read_vocabulary, tokenizer_file


class Vocabulary:
    """`token_bytes[id]`: empty for special tokens. `longest_token`: in bytes.

    `eos_token`, `bos_token`: as the tokenizer's configuration says.
    """

    def __init__(self, model_dir: Path) -> None:
        path = tokenizer_file(str(model_dir))
        vocabulary = read_vocabulary(path.read_bytes())
        self.token_bytes = vocabulary.token_bytes
        self.longest_token = max(map(len, self.token_bytes))
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = model_dir / "tokenizer_config.json"
        names = json.loads(config.read_bytes()) if config.is_file() else {}
        eos = self._special(names.get("eos_token"))
        self.eos_token = int(vocabulary.eos_token) if eos is None else eos
        self.bos_token = self._special(names.get("bos_token"))

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the text is not valid Unicode: {error}") from error
        # Of all ways this one holds no GIL, and no offsets are made.
        return list(self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids)

    def name_of(self, token: int) -> str:
        """As the tokenizer writes it: what a special token is called."""
        return self._tokenizer.id_to_token(token) or ""

    def bytes_of(self, token: int) -> bytes:
        return self.token_bytes[token] if 0 <= token < len(self.token_bytes) else b""

    def decode(self, tokens: Sequence[int]) -> str:
        """Special tokens say nothing; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.bytes_of, tokens)).decode("utf-8", "replace")

    def _special(self, name: object) -> int | None:
        text = name.get("content") if isinstance(name, dict) else name
        return self._tokenizer.token_to_id(text) if isinstance(text, str) else None
