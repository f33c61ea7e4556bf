"""The trie of a tokenizer, from the cache or built and cached by the content of its file."""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from aici_runtime import tokens, trie
from aici_runtime.cache import write_atomically
from aici_runtime.errors import UnavailableError
from aici_runtime.ids import TokenId

_FORMAT = "1"
"""Raise it whenever `tokens` or `trie` give other bytes for the same file."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedVocabulary:
    trie: bytes
    vocab_size: int
    eos_token: TokenId
    tokenizer_json: Path


def load(name: str, cache_dir: Path) -> LoadedVocabulary:
    path = tokens.tokenizer_file(name)
    content = path.read_bytes()
    cached = cache_dir / "tries" / f"{hashlib.sha256(content).hexdigest()}-{_FORMAT}.trie"
    try:
        blob = cached.read_bytes()
    except OSError:
        blob = _build(content)
        try:
            write_atomically(cached, blob)
        except UnavailableError as error:
            _log.warning("the token trie is built anew at each start: %s", error)
    vocab_size, eos_token = trie.read_header(blob)
    return LoadedVocabulary(blob, vocab_size, eos_token, path)


def _build(content: bytes) -> bytes:
    vocabulary = tokens.read_vocabulary(content)
    for note in vocabulary.notes:
        _log.warning("%s", note)
    excluded = trie.too_long(vocabulary.token_bytes)
    if excluded:
        _log.warning("%d tokens are too long for the trie and cannot be allowed: %s", len(excluded), excluded[:8])
    return trie.serialize(vocabulary.token_bytes, vocabulary.eos_token)
