"""Tokenizers made with the real library, each for one purpose."""

from itertools import product
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers


def golden(folder: Path) -> Path:
    """The four tokens of `tries.GOLDEN`."""
    return _save(["a", "ab", "b"], folder)


def wide(folder: Path, size: int) -> Path:
    """A tokenizer with `size` tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return _save([*alphabet, *map("".join, product(alphabet, alphabet))][: size - 1], folder)


def long_tokens(folder: Path) -> Path:
    """Tokens of 254, 255, 1023 and 1024 bytes, besides `b`."""
    return _save(["b", *("a" * length for length in (254, 255, 1023, 1024))], folder)


def _save(texts: list[str], folder: Path) -> Path:
    """A tokenizer with these tokens in order, then `</s>`."""
    vocab = {text: token for token, text in enumerate(texts)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path
