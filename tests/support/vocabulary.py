"""A small byte-level tokenizer with the tokens of a test."""

import json
from collections.abc import Iterable
from pathlib import Path

EOS = "<|endoftext|>"


def write_tokenizer(folder: Path, tokens: Iterable[bytes]) -> Path:
    """Write a tokenizer into `folder` and return `folder`. EOS is token 0, then come the 256 single bytes, then
    `tokens`."""
    letters = _letters()
    words = [*([byte] for byte in range(256)), *tokens]
    vocab = {EOS: 0} | {"".join(letters[byte] for byte in word): number for number, word in enumerate(words, 1)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    document = {
        "version": "1.0",
        "added_tokens": [{"id": 0, "content": EOS} | flags],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return folder


def _letters() -> list[str]:
    """Return the character of every byte in byte-level tokenizers: a printable byte is itself, other bytes follow
    from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(0x100 + others.index(byte)) for byte in range(256)]
