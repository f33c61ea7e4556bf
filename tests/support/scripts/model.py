"""A model without a network: which token comes is a hash of the tokens so far. And the tokenizer that it goes with."""

import json
from collections.abc import Iterable, Sequence
from zlib import crc32

WORDS = ("ab", "ba", "aab", " a", "b c", "é", "abc")
EOS = 0
TOKENS: list[bytes] = [b"", *(bytes([byte]) for byte in range(256)), *(word.encode() for word in WORDS)]
PROMPT = "é?"
"""Three tokens."""


def tokenize(text: str) -> list[int]:
    """As a tokenizer of bytes with some words does: a text that is a word is one token."""
    raw = text.encode()
    return [TOKENS.index(raw, 1)] if text in WORDS else [1 + byte for byte in raw]


def decode(tokens: Iterable[int]) -> bytes:
    return b"".join(TOKENS[token] for token in tokens)


def greedy(tokens: Sequence[int], allowed: Iterable[int]) -> int:
    """The most probable of `allowed`. Words are likelier than bytes, and the end than both."""
    seen = crc32(json.dumps(list(tokens)).encode())

    def score(token: int) -> int:
        weight = 3 if token > 256 else 4 if token == EOS else 1
        return (crc32(token.to_bytes(2, "little"), seen) >> 8) * weight

    return max(allowed, key=lambda token: (score(token), token))
