"""The tokenizer behind `aici_host_tokenize`: no special tokens, no added leading space.

Bytes that are not UTF-8 keep their value and position: such bytes become the longest tokens of the trie.
"""

import json
import os
import re
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aici_base.errors import UsageError
from aici_runtime.tokenizer import greedy

_NO_TEXT = re.compile("([\udc80-\udcff]+)")
"""Bytes that are not UTF-8, as `surrogateescape` decodes them."""


def load(tokenizer_json: Path, trie: bytes) -> Callable[[bytes], bytes]:
    """Return a function from bytes to token ids as little-endian u32. The function raises UsageError for a byte without
    a token. Loading is slow and needs memory: load once, before forking. `trie`: the trie of the same vocabulary."""
    # A thread pool would not survive the fork. The library reads this variable on first use.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    config = json.loads(tokenizer_json.read_bytes())
    config["normalizer"] = _without_space(config.get("normalizer"))
    config["pre_tokenizer"] = _without_space(config.get("pre_tokenizer"))
    config["truncation"] = config["padding"] = None
    try:
        tokenizer = Tokenizer.from_str(json.dumps(config))
    except Exception as error:  # the library has no error class of its own
        raise UsageError(f"cannot load {tokenizer_json}: {error}") from error

    def tokenize(text: bytes) -> bytes:
        tokens = array("I")
        for k, part in enumerate(_NO_TEXT.split(text.decode("utf-8", "surrogateescape"))):
            if k % 2:
                tokens += greedy.tokenize(trie, part.encode("utf-8", "surrogateescape"))
            elif part:
                tokens.extend(tokenizer.encode(part, add_special_tokens=False).ids)
        return tokens.tobytes()

    return tokenize


def _without_space(part: Any) -> Any:
    """Return the normalizer or pre-tokenizer without the part that adds a leading space, or None if empty."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "Prepend":
        return None
    if kind == "Metaspace":
        return part | {"prepend_scheme": "never", "add_prefix_space": False}
    if kind == "ByteLevel":
        return part | {"add_prefix_space": False}
    if kind == "Sequence":
        key = "normalizers" if "normalizers" in part else "pretokenizers"
        return part | {key: [inner for inner in map(_without_space, part[key]) if inner is not None]}
    return part
