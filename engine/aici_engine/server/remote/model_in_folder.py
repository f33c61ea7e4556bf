"""Tells whether two machines have the same model: weights, configuration and tokenizer."""

import hashlib
from pathlib import Path
from typing import Final

from aici_engine.model.manifest import model_digest
from aici_engine.model.tensor_source import FolderSource

_FILES: Final = ("tokenizer.json", "generation_config.json")
"""Files beside the weights and the configuration that the engine's answers depend on."""


def digest_of(folder: Path) -> bytes:
    """Return 32 bytes that are the same for the same model. Reads all weights once, and remembers the digests."""
    found = hashlib.sha256(bytes.fromhex(model_digest(FolderSource(folder))))
    for name in _FILES:
        file = folder / name
        found.update(hashlib.sha256(file.read_bytes()).digest() if file.is_file() else bytes(32))
    return found.digest()
