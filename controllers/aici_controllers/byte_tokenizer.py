"""A tokenizer of single bytes: cases of a controller need no model and mean the same everywhere."""

import json
from collections.abc import Sequence
from pathlib import Path

from aici_base.tokenizer.tokens import byte_alphabet

EOS = "<|endoftext|>"


def write_byte_tokenizer(folder: Path, tokens: Sequence[str] = ()) -> Path:
    """Write the tokenizer and return its file. Token 0 is the end of the sequence, tokens 1 to 256 are the bytes,
    followed by `tokens` of several bytes.

    A text equal to one of `tokens` becomes this token; any other text is tokenized byte by byte.
    """
    letters = {byte: letter for letter, byte in byte_alphabet().items()}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    words = ["".join(letters[byte] for byte in text.encode()) for text in tokens]
    texts = dict.fromkeys([*(letters[byte] for byte in range(256)), *words])
    document = {
        "version": "1.0",
        "added_tokens": [{"id": 0, "content": EOS, "special": True} | flags],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {
            "type": "BPE",
            "vocab": {EOS: 0} | {text: number for number, text in enumerate(texts, 1)},
            "merges": [],
            "ignore_merges": True,
        },
    }
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(document))
    return path
