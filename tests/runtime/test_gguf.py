"""GGUF files written by the package `gguf` are read by our reader, and the tokenizer inside is unchanged."""

import contextlib
import json
from array import array
from pathlib import Path
from typing import Any

import gguf as official
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from aici_base.errors import UsageError
from aici_base.tokenizer import gguf_tokenizer
from aici_base.tokenizer.gguf import read_metadata
from aici_base.tokenizer.tokens import read_vocabulary
from aici_runtime.tokenizer import host_tokenizer, vocabulary
from tests.runtime.support import tokenizer
from tests.support.model import default_model_dir

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
TEXTS = ["Hello world, isn't   it\n\n ok", "né 日本語 🙂", "12345 a1b22", "<|im_start|>user\n", " he hello"]


def write(path: Path, fill: Any) -> Path:
    writer = official.GGUFWriter(path, "llama")
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def written(path: Path, config: Any, *, kind: str, eos: int | None = None, **more: Any) -> Path:
    """Write a GGUF file with the tokens of a tokenizer.json."""
    special = {token["id"]: CONTROL if token["special"] else USER_DEFINED for token in config["added_tokens"]}
    texts = config["model"]["vocab"] | {token["content"]: token["id"] for token in config["added_tokens"]}
    ordered = sorted(texts, key=texts.__getitem__)

    def fill(writer: official.GGUFWriter) -> None:
        writer.add_tokenizer_model(kind)
        writer.add_token_list(ordered)
        writer.add_token_types([special.get(token, NORMAL) for token in range(len(ordered))])
        if eos is not None:
            writer.add_eos_token_id(eos)
        for name, value in more.items():
            getattr(writer, f"add_{name}")(value)

    return write(path, fill)


def merges(config: Any) -> list[str]:
    return [merge if isinstance(merge, str) else " ".join(merge) for merge in config["model"]["merges"]]


def test_values_of_every_type(tmp_path: Path) -> None:
    def fill(writer: official.GGUFWriter) -> None:
        for kind in ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32", "float64"):
            getattr(writer, f"add_{kind}")(f"x.{kind}", 7)
        writer.add_int32("x.negative", -7)
        writer.add_bool("x.bool", True)
        writer.add_string("x.text", "né")
        writer.add_array("x.texts", ["a", "", "ü"])
        writer.add_array("x.numbers", [1, 2, 3])

    found = read_metadata(write(tmp_path / "x.gguf", fill))
    assert [value for key, value in found.items() if "int" in key or "float" in key] == [7] * 10
    assert (found["x.negative"], found["x.bool"], found["x.text"]) == (-7, True, "né")
    assert (found["x.texts"], found["x.numbers"]) == (["a", "", "ü"], [1, 2, 3])


def test_the_default_model(tmp_path: Path) -> None:
    """Compare with a tokenizer.json made from a GGUF file by transformers."""
    original = default_model_dir() / "tokenizer.json"
    config = json.loads(original.read_bytes())
    more = {"tokenizer_pre": "gpt-2", "token_merges": merges(config)}
    path = written(tmp_path / "model.gguf", config, kind="gpt2", eos=2, **more)
    loaded, same = vocabulary.load(str(path), tmp_path), vocabulary.load(str(original), tmp_path)
    assert (loaded.eos_token, same.eos_token) == (2, 0)
    assert read_vocabulary(loaded.tokenizer_json.read_bytes()).token_bytes == (
        read_vocabulary(original.read_bytes()).token_bytes
    )
    expected, found = (Tokenizer.from_file(str(file)) for file in (original, loaded.tokenizer_json))
    for text in TEXTS:
        assert found.encode(text).ids == expected.encode(text).ids


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("gpt-2", ["it", "'s", " 123", " x", "  ", " y", "\n", "\n", "Z"]),
        ("smollm", ["it", "'s", " ", "1", "2", "3", " x", "  ", " y", "\n", "\n", "Z"]),
        ("llama-bpe", ["it", "'s", " ", "123", " x", "  ", " y", "\n\n", "Z"]),
        ("llama3", ["it", "'s", " ", "123", " x", "  ", " y", "\n\n", "Z"]),
        ("qwen2", ["it", "'s", " ", "1", "2", "3", " x", "  ", " y", "\n\n", "Z"]),
        ("tekken", ["it", "'s", " ", "1", "2", "3", " x", "  ", " y", "\n\n", "Z"]),
        ("gpt-4o", ["it's", " ", "123", " x", "  ", " y", "\n\n", "Z"]),
        ("of nobody", ["it", "'s", " 123", " x", "  ", " y", "\n", "\n", "Z"]),
    ],
)
def test_how_text_is_split(
    byte_level: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, pre: str, words: list[str]
) -> None:
    config = json.loads((byte_level / "tokenizer.json").read_bytes())
    more = {"tokenizer_pre": pre, "token_merges": merges(config)}
    content, _ = gguf_tokenizer.read(written(tmp_path / "x.gguf", config, kind="gpt2", **more))
    splitter = Tokenizer.from_str(content.decode()).pre_tokenizer
    assert splitter is not None
    text = "it's 123 x   y\n\nZ"
    assert [text[start:end] for _, (start, end) in splitter.pre_tokenize_str(text)] == words
    assert ("of nobody" in caplog.text) == (pre == "of nobody")


def test_byte_fallback(tmp_path: Path) -> None:
    """SentencePiece's merges follow from the scores: the better token is merged first."""
    config = json.loads((tokenizer.byte_fallback(tmp_path / "a") / "tokenizer.json").read_bytes())
    vocab = config["model"]["vocab"]
    for text in ("b", "ab", "▁ab", "ba", "bab"):
        vocab[text] = len(vocab)
    rank = {"ba": 1.0, "ab": 0.5, "▁a": 0.4, "▁ab": 0.3, "bab": 0.2}
    scores = [rank.get(text, -1.0) for text in vocab]
    path = written(tmp_path / "x.gguf", config, kind="llama", eos=2, token_scores=scores, unk_token_id=0)
    loaded = vocabulary.load(str(path), tmp_path)
    token_bytes = read_vocabulary(loaded.tokenizer_json.read_bytes()).token_bytes
    assert token_bytes[:3] == [b"", b"", b""]
    assert token_bytes[3:] == [
        *(bytes([byte]) for byte in range(256)),
        b" ",
        b"a",
        b" a",
        b"b",
        b"ab",
        b" ab",
        b"ba",
        b"bab",
    ]
    assert loaded.eos_token == 2
    tokenize = host_tokenizer.load(loaded.tokenizer_json, loaded.tries["v2"])
    for text, parts in {
        b"aba": [b"a", b"ba"],
        b" ab": [b" ab"],
        "é b".encode(): [b"\xc3", b"\xa9", b" ", b"b"],
        b"\xff a": [b"\xff", b" a"],
    }.items():
        assert [token_bytes[token] for token in array("I", tokenize(text))] == parts


def test_other_kinds_are_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", lambda writer: writer.add_tokenizer_model("bert"))
    with pytest.raises(UsageError, match=r"x\.gguf: a tokenizer of the kind bert is not supported"):
        gguf_tokenizer.read(path)


@pytest.mark.parametrize(
    "more",
    [
        {"token_merges": ["a b"], "token_types": [1]},
        {"kind": "llama", "token_scores": [1.0]},
    ],
)
def test_parts_that_do_not_fit(byte_level: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    config = json.loads((byte_level / "tokenizer.json").read_bytes())
    path = write_odd(tmp_path / "x.gguf", sorted(config["model"]["vocab"]), **more)
    with pytest.raises(UsageError, match="has no readable tokenizer: 260 tokens, but 1"):
        gguf_tokenizer.read(path)


def write_odd(path: Path, texts: list[str], kind: str = "gpt2", **more: Any) -> Path:
    def fill(writer: official.GGUFWriter) -> None:
        writer.add_tokenizer_model(kind)
        writer.add_token_list(texts)
        for name, value in more.items():
            getattr(writer, f"add_{name}")(value)

    return write(path, fill)


@pytest.fixture(scope="module")
def small(byte_level: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    config = json.loads((byte_level / "tokenizer.json").read_bytes())
    path = tmp_path_factory.mktemp("gguf") / "x.gguf"
    return written(path, config, kind="gpt2", eos=0, token_merges=merges(config)).read_bytes()


@settings(deadline=None)
@given(data=st.data())
def test_broken_files(data: st.DataObject, small: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A truncated or corrupted file is either read or refused."""
    path = tmp_path_factory.getbasetemp() / "broken.gguf"
    broken = bytearray(small[: data.draw(st.integers(0, len(small)))])
    for at in data.draw(st.lists(st.integers(0, 200), max_size=3)):
        if at < len(broken):
            broken[at] = data.draw(st.integers(0, 255))
    path.write_bytes(broken)
    with contextlib.suppress(UsageError):
        gguf_tokenizer.read(path)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"", "the file is empty"),
        (b"GG", "the file ends before the tensors begin"),
        (b"GGUF\x03\0\0\0" + bytes(8) + b"\x01" + bytes(3), "the file ends before the tensors begin"),
        (b"GGML" + bytes(20), "magic b'GGML'"),
        (b"GGUF\x01\0\0\0" + bytes(20), "version 1"),
        (b"GGUF\0\0\0\x03" + bytes(20), "version 50331648"),
        (b"GGUF\x03\0\0\0" + bytes(8) + b"\x01" + bytes(7) + b"\xff" * 8, "goes beyond the end"),
        (b"GGUF\x03\0\0\0" + bytes(8) + b"\x01" + bytes(15) + b"\x63\0\0\0", "unknown type 99"),
        (
            b"GGUF\x03\0\0\0" + bytes(8) + b"\x01" + bytes(15) + b"\x09\0\0\0\x09\0\0\0" + b"\xff" * 8,
            "goes beyond the end",
        ),
    ],
)
def test_refusals(tmp_path: Path, head: bytes, words: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(head)
    with pytest.raises(UsageError, match=words):
        read_metadata(path)
