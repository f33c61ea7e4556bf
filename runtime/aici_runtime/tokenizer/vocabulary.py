"""Load the token trie of a tokenizer from the cache, or build and cache the trie. Key: the content of the file."""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aici_base.cache_files import write_atomically
from aici_base.errors import UnavailableError
from aici_base.ids import TokenId
from aici_base.tokenizer import tokenizer_sources, tokens
from aici_runtime.abi import TOKEN_LEN_BITS, TOKEN_LEN_BITS_V2, Abi
from aici_runtime.tokenizer import trie

_FORMAT = "1"
"""Raise this number whenever `tokens` or `trie` produce other bytes for the same file."""

_LEN_BITS: dict[Abi, int] = {"v1": TOKEN_LEN_BITS, "v2": TOKEN_LEN_BITS_V2}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedVocabulary:
    """The data of a tokenizer. `tries`: by the version of the guest ABI."""

    tries: Mapping[Abi, bytes]
    vocab_size: int
    eos_token: TokenId
    tokenizer_json: Path

    def digest(self) -> str:
        """Return a short hash of everything that a guest can read: 32 hex digits. Takes milliseconds."""
        digest = hashlib.sha256()
        for abi in sorted(self.tries):
            digest.update(self.tries[abi])
        return digest.hexdigest()[:32]


def load(name: str, cache_dir: Path, *, logits_size: int | None = None) -> LoadedVocabulary:
    """Load a tokenizer by name. Raise NotFoundError if there is none, UsageError if the file is not a tokenizer."""
    source = tokenizer_sources.find(name, cache_dir, logits_size=logits_size)
    content = source.tokenizer_json.read_bytes()
    eos = "" if source.eos_token is None else f"-{source.eos_token}"
    stem = f"{hashlib.sha256(content).hexdigest()}{eos}-{_FORMAT}"
    cached = {abi: cache_dir / "tries" / f"{stem}-{bits}.trie" for abi, bits in _LEN_BITS.items()}
    try:
        tries = {abi: file.read_bytes() for abi, file in cached.items()}
    except OSError:
        tries = _build(content, source.eos_token)
        try:
            for abi, blob in tries.items():
                write_atomically(cached[abi], blob)
        except UnavailableError as error:
            _log.warning("the token trie cannot be cached and is built at every start: %s", error)
    vocab_size, eos_token = trie.read_header(tries["v1"])
    return LoadedVocabulary(tries, vocab_size, eos_token, source.tokenizer_json)


def _build(content: bytes, eos_token: TokenId | None) -> dict[Abi, bytes]:
    vocabulary = tokens.read_vocabulary(content, eos_token=eos_token)
    for note in vocabulary.notes:
        _log.warning("%s", note)
    excluded = trie.too_long(vocabulary.token_bytes)
    if excluded:
        _log.warning("%d tokens are too long for the trie and cannot be allowed: %s", len(excluded), excluded[:8])
    return {
        abi: trie.serialize(vocabulary.token_bytes, vocabulary.eos_token, len_bits=bits)
        for abi, bits in _LEN_BITS.items()
    }
