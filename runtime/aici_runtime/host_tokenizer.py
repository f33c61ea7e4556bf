"""What `aici_host_tokenize` gives: the tokens of a text, without special tokens and without an added leading space."""

import json
import os
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aici_runtime.errors import UsageError


def load(tokenizer_json: Path) -> Callable[[bytes], bytes]:
    """A function from UTF-8 (lossy) to token ids as little-endian u32. Heavy: load it once, before forking."""
    # A pool of threads would not survive the fork; the library reads this when it is first used.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    config = json.loads(tokenizer_json.read_bytes())
    config["normalizer"] = _without_space(config.get("normalizer"))
    config["pre_tokenizer"] = _without_space(config.get("pre_tokenizer"))
    config["truncation"] = config["padding"] = None
    try:
        tokenizer = Tokenizer.from_str(json.dumps(config))
    except Exception as error:  # the library has no class of its own
        raise UsageError(f"cannot load {tokenizer_json}: {error}") from error

    def tokenize(text: bytes) -> bytes:
        encoded = tokenizer.encode(text.decode("utf-8", "replace"), add_special_tokens=False)
        return array("I", encoded.ids).tobytes()

    return tokenize


def _without_space(part: Any) -> Any:
    """A normalizer or pre-tokenizer that adds no space in front; None if it does nothing else."""
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
