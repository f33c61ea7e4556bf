"""What `aici_host_tokenize` gives: the tokens of a text, without special tokens and without an added leading space."""

import json
import os
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any


def load(tokenizer_json: Path) -> Callable[[bytes], bytes]:
    """A function from UTF-8 (lossy) to token ids as little-endian u32. Heavy: load it once, before forking."""
    # A pool of threads would not survive the fork; the library reads this when it is first used.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    config = json.loads(tokenizer_json.read_bytes())
    config["normalizer"] = _without_prepend(config.get("normalizer"))
    config["truncation"] = config["padding"] = None
    tokenizer = Tokenizer.from_str(json.dumps(config))

    def tokenize(text: bytes) -> bytes:
        encoded = tokenizer.encode(text.decode("utf-8", "replace"), add_special_tokens=False)
        return array("I", encoded.ids).tobytes()

    return tokenize


def _without_prepend(normalizer: Any) -> Any:
    if not isinstance(normalizer, dict) or normalizer.get("type") != "Sequence":
        return normalizer
    return normalizer | {"normalizers": [part for part in normalizer["normalizers"] if part["type"] != "Prepend"]}
