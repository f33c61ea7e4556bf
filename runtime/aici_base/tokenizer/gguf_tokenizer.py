"""Convert the tokenizer of a GGUF file to a `tokenizer.json` with the same tokens and the same token bytes.

Two kinds can be converted: `gpt2`, byte-level BPE, and `llama`, SentencePiece BPE with byte fallback, whose merges
follow from the scores. `tokenizer.ggml.pre` names how text is split before BPE. For an unknown name the text is split
as GPT-2 splits, with a warning: token bytes, and therefore masks, do not depend on the split.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from aici_base.errors import UsageError
from aici_base.ids import TokenId
from aici_base.tokenizer.gguf import Value, read_metadata

_SPACE = "▁"

_log = logging.getLogger(__name__)


class _Type(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORD, _SIGNS = r"[^\r\n\p{L}\p{N}]?\p{L}+", r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
_SIGNS_AND_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"

_PATTERNS = {
    "llama-bpe": "|".join([_CONTRACTIONS, _WORD, r"\p{N}{1,3}", _SIGNS, _TAIL]),
    "qwen2": "|".join([_CONTRACTIONS, _WORD, r"\p{N}", _SIGNS, _TAIL]),
    "gpt-4o": "|".join([*(f"{word}{_CONTRACTIONS}?" for word in _CASED), r"\p{N}{1,3}", _SIGNS_AND_SLASHES, _TAIL]),
    "tekken": "|".join([*_CASED, r"\p{N}", _SIGNS_AND_SLASHES, _TAIL]),
}
_LIKE = {
    **dict.fromkeys(("llama3", "llama-v3", "falcon3", "dbrx", "smaug-bpe"), "llama-bpe"),
    **dict.fromkeys(("stablelm2", "deepseek-r1-qwen", "megrez"), "qwen2"),
}
_LIKE_GPT2 = ("default", "gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe", "trillion", "granite-docling")
_DIGITS_THEN_GPT2 = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
_WHOLE_WORDS = ("llama-bpe", "tekken")
"""Vocabularies in which a whole word that is a token stays whole, whatever the merges would produce."""


def read(path: Path) -> tuple[bytes, TokenId | None]:
    """Return a tokenizer.json and the end-of-sequence token, if the file names one. Raise UsageError."""
    metadata = read_metadata(path)
    kind = metadata.get("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise UsageError(
            f"{path}: a tokenizer of the kind {kind} is not supported",
            hint="supported kinds are gpt2 and llama; or give a tokenizer.json",
        )
    try:
        build = _byte_level if kind == "gpt2" else _sentencepiece
        tokens, types = _texts(metadata, "tokens"), _numbers(metadata, "token_type")
        types = types or [_Type.NORMAL] * len(tokens)
        if len(types) != len(tokens):
            raise ValueError(f"{len(tokens)} tokens, but {len(types)} types of tokens")
        tokenizer = build(metadata, {text: number for number, text in enumerate(tokens)}, tokens)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path} has no readable tokenizer: {error}") from error
    tokenizer["added_tokens"] = [
        {
            "id": number, "content": text, "special": kind != _Type.USER_DEFINED,
            "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
        }
        for number, (text, kind) in enumerate(zip(tokens, types, strict=True))
        if kind not in (_Type.NORMAL, _Type.BYTE)
    ]  # fmt: skip
    eos = metadata.get("tokenizer.ggml.eos_token_id")
    known_eos = TokenId(eos) if isinstance(eos, int) and eos < len(tokens) else None
    return json.dumps(tokenizer, ensure_ascii=False).encode(), known_eos


def _byte_level(metadata: Mapping[str, Value], vocab: Mapping[str, int], _: Sequence[str]) -> dict[str, Any]:
    pre = str(metadata.get("tokenizer.ggml.pre", "default"))
    pre = _LIKE.get(pre, pre)
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": pre not in _PATTERNS}
    return {
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": _texts(metadata, "merges"),
            "ignore_merges": pre in _WHOLE_WORDS,
        },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*_split(pre), to_bytes]},
        "decoder": to_bytes,
    }


def _split(pre: str) -> list[dict[str, Any]]:
    if pre in _PATTERNS:
        return [{"type": "Split", "pattern": {"Regex": _PATTERNS[pre]}, "behavior": "Isolated", "invert": False}]
    if pre in _DIGITS_THEN_GPT2:
        return [{"type": "Digits", "individual_digits": True}]
    if pre not in _LIKE_GPT2:
        _log.warning("unknown pre-tokenizer %r: aici_host_tokenize splits text as GPT-2 does", pre)
    return []


def _sentencepiece(metadata: Mapping[str, Value], vocab: Mapping[str, int], tokens: Sequence[str]) -> dict[str, Any]:
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    unk_token = tokens[unknown] if type(unknown) is int and unknown < len(tokens) else None
    scores = _numbers(metadata, "scores")
    if len(scores) != len(tokens):
        raise ValueError(f"{len(tokens)} tokens, but {len(scores)} scores")
    return {
        "model": {
            "type": "BPE", "vocab": vocab, "merges": _merges(vocab, scores),
            "unk_token": unk_token, "fuse_unk": True, "byte_fallback": True,
        },
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
    }  # fmt: skip


def _merges(vocab: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Return all pairs that form a token, best score first: SentencePiece always merges the pair with the best score
    next."""
    found = [
        (-scores[number], vocab[text[:cut]], vocab[text[cut:]], text[:cut], text[cut:])
        for text, number in vocab.items()
        for cut in range(1, len(text))
        if text[:cut] in vocab and text[cut:] in vocab
    ]
    return [(left, right) for *_, left, right in sorted(found)]


def _texts(metadata: Mapping[str, Value], key: str) -> list[str]:
    values = metadata.get(f"tokenizer.ggml.{key}", [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"tokenizer.ggml.{key} is not a list of texts")
    return [str(value) for value in values]


def _numbers(metadata: Mapping[str, Value], key: str) -> list[float]:
    values = metadata.get(f"tokenizer.ggml.{key}", [])
    if not isinstance(values, list):
        raise ValueError(f"tokenizer.ggml.{key} is not a list")
    return [value for value in values if isinstance(value, int | float)]
