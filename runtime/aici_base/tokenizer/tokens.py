"""Read the bytes of every token and the end-of-sequence token from a Hugging Face `tokenizer.json`.

Guests compute with bytes, so the bytes must be exact. Other configuration files of a tokenizer are not read: the engine
decides which token ends a turn of a chat.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aici_base.errors import NotFoundError, UsageError
from aici_base.ids import TokenId

HINT = "give the folder of a model on this machine, its tokenizer.json, or its .gguf"
_EOS_NAMES = ("</s>", "<|endoftext|>", "<|end_of_text|>")
_MAX_TOKENS = 1 << 24
"""A vocabulary with more tokens is damaged: the largest known vocabularies have about 300,000 tokens."""
_MAX_FILE_BYTES = 128 << 20
"""The largest known files have 35 MB."""
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`token_bytes`: by token id; empty for special tokens and unused ids. `notes`: warnings for a person to read.

    `added`: the names of the tokens beside the model's vocabulary, special tokens among them.
    """

    token_bytes: list[bytes]
    eos_token: TokenId
    notes: tuple[str, ...]
    added: Mapping[TokenId, str]


def tokenizer_file(name: str) -> Path:
    """Return the `tokenizer.json` for a folder or a file name. Raise NotFoundError if there is no such file, UsageError
    if the file is far too large.

    >>> tokenizer_file(str(tokenizer_folder)).name
    'tokenizer.json'
    """
    path = Path(name)
    if path.is_dir():
        path = path / "tokenizer.json"
    if not path.is_file():
        raise NotFoundError(f"no tokenizer at {name}", hint=HINT)
    if (size := path.stat().st_size) > _MAX_FILE_BYTES:
        problem = f"{path} has {size:,} bytes: at most {_MAX_FILE_BYTES:,} of a tokenizer are read"
        raise UsageError(problem, hint="the file is damaged: fetch it again")
    return path


def vocab_size(tokenizer_json: bytes) -> int:
    """Return the greatest token id plus one. Raise UsageError if the content is not a tokenizer.json.

    >>> vocab_size(tokenizer_json)
    261
    """
    return len(read_vocabulary(tokenizer_json).token_bytes)


def read_vocabulary(tokenizer_json: bytes, *, eos_token: TokenId | None = None) -> Vocabulary:
    """Return the bytes of all tokens. `eos_token`: the end-of-sequence token if known, in place of a guess by name.

        >>> vocabulary = read_vocabulary(tokenizer_json)
        >>> vocabulary.token_bytes[258]
        b'hel'

    Raise UsageError if the content is not a tokenizer.json or has an unsupported decoder.
    """
    try:
        return _vocabulary(json.loads(tokenizer_json), eos_token)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"not a tokenizer.json: {str(error)[:200] or error!r}") from error


def _vocabulary(tokenizer: Any, known_eos: TokenId | None) -> Vocabulary:
    texts = _texts(tokenizer["model"]["vocab"])
    to_bytes = _decoder(tokenizer.get("decoder"))
    added = tokenizer.get("added_tokens") or []
    size = 1 + max(max(texts.values(), default=-1), max((token["id"] for token in added), default=-1))
    if size > _MAX_TOKENS:
        raise ValueError(f"a token has the id {size - 1}")
    token_bytes = [b""] * size
    notes: list[str] = []
    is_added = {token["id"] for token in added}
    for text, token_id in texts.items():
        raw = b"" if token_id in is_added else to_bytes(text)
        if raw is None:
            notes.append(f"token {token_id} cannot be written as bytes and is left empty: {text!r}")
        else:
            token_bytes[token_id] = raw
    eos: int | None = None
    for token in added:
        token_bytes[token["id"]] = b"" if token["special"] else token["content"].encode()
        if token["special"] and token["content"] in _EOS_NAMES:
            eos = token["id"]
    if known_eos is not None:
        eos = known_eos
    elif eos is None:
        eos = 0
        notes.append(f"no special token is named {', '.join(_EOS_NAMES)}: token 0 is used as the end-of-sequence token")
    names = {TokenId(token["id"]): str(token["content"]) for token in added}
    return Vocabulary(token_bytes, TokenId(eos), tuple(notes), names)


def _texts(vocab: Any) -> Mapping[str, int]:
    """Return ids by text. BPE and WordPiece map text to id; Unigram lists `[text, score]` in the order of ids."""
    if isinstance(vocab, list):
        return {entry[0]: token_id for token_id, entry in enumerate(vocab)}
    return dict(vocab)


def _decoder(decoder: Any) -> Callable[[str], bytes | None]:
    kind = decoder.get("type") if isinstance(decoder, dict) else None
    if kind == "ByteLevel":
        return _byte_level
    if kind == "Sequence":
        parts = {part["type"]: part for part in decoder["decoders"]}
        if "ByteFallback" in parts:
            return _byte_fallback(_space_of(parts.get("Replace")))
        kind = f"Sequence of {', '.join(parts)}"
    raise UsageError(
        f"a tokenizer with the decoder {kind} is not supported",
        hint="the decoder must be ByteLevel, or a Sequence with ByteFallback",
    )


def _space_of(replace: Any) -> str | None:
    if replace is not None and replace.get("content") == " ":
        space = replace["pattern"].get("String")
        return space if isinstance(space, str) else None
    return None


def _byte_fallback(space: str | None) -> Callable[[str], bytes | None]:
    def to_bytes(text: str) -> bytes:
        match = _BYTE_TOKEN.fullmatch(text)
        if match:
            return bytes([int(match[1], 16)])
        return (text.replace(space, " ") if space else text).encode()

    return to_bytes


def byte_alphabet() -> dict[str, int]:
    """Return bytes by character in GPT-2's alphabet: printable bytes stand for themselves, all others for U+0100,
    U+0101, ..."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in set(plain))
    return {chr(byte): byte for byte in plain} | {chr(0x100 + k): byte for k, byte in enumerate(others)}


_ALPHABET = byte_alphabet()


def _byte_level(text: str) -> bytes | None:
    try:
        return bytes([_ALPHABET[char] for char in text])
    except KeyError:
        return None
