"""Small tokenizers, made with the real library."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

BYTE_LEVEL_EOS = 0
BYTE_LEVEL_SIZE = 1 + 256 + 3 + 1


def byte_level(folder: Path) -> Path:
    """Byte-level BPE: `<|endoftext|>`, 256 bytes, three merges, and the plain added token `<note>`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts = ["<|endoftext|>", *alphabet, "he", "hel", "Ġhe"]
    vocab = {text: token_id for token_id, text in enumerate(texts)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[("h", "e"), ("he", "l"), ("Ġ", "he")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    tokenizer.add_tokens([AddedToken("<note>")])
    return _save(tokenizer, folder)


def byte_fallback(folder: Path) -> Path:
    """In the style of the Llama family: `▁` for a space, `<0xHH>` for bytes, a prepended space."""
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a"]
    vocab = {text: token_id for token_id, text in enumerate(texts)}
    model = models.BPE(vocab=vocab, merges=[("▁", "a")], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<unk>", "<s>", "</s>")])
    return _save(tokenizer, folder)


def word_piece(folder: Path) -> Path:
    tokenizer = Tokenizer(models.WordPiece(vocab={"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    return _save(tokenizer, folder)


def _save(tokenizer: Tokenizer, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
