"""A model without a network: a hash of the tokens so far decides the next token. And the tokenizer of the model."""

import json
from collections.abc import Iterable, Sequence
from zlib import crc32

WORDS = ("ab", "ba", "aab", " a", "b c", "é", "abc")
EOS = 0
TOKENS: list[bytes] = [b"", *(bytes([byte]) for byte in range(256)), *(word.encode() for word in WORDS)]
PROMPT = "é?"
"""Three tokens."""


def tokenize(text: str) -> list[int]:
    """Tokenize like a byte tokenizer with some words: a text that equals a word is one token, other texts are bytes."""
    raw = text.encode()
    return [TOKENS.index(raw, 1)] if text in WORDS else [1 + byte for byte in raw]


def decode(tokens: Iterable[int]) -> bytes:
    return b"".join(TOKENS[token] for token in tokens)


def greedy(tokens: Sequence[int], allowed: Iterable[int]) -> int:
    """Return the most probable of `allowed`. Words are likelier than bytes, and EOS is likelier than words."""
    seen = crc32(json.dumps(list(tokens)).encode())

    def score(token: int) -> int:
        weight = 3 if token > 256 else 4 if token == EOS else 1
        return (crc32(token.to_bytes(2, "little"), seen) >> 8) * weight

    return max(allowed, key=lambda token: (score(token), token))
