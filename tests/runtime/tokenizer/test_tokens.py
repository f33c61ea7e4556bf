import json
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from aici_base.errors import NotFoundError, UsageError
from aici_base.ids import TokenId
from aici_base.tokenizer import tokens
from aici_runtime.tokenizer import greedy, host_tokenizer, trie, vocabulary
from tests.runtime.support import tokenizer


def read(folder: Path) -> tokens.Vocabulary:
    return tokens.read_vocabulary((folder / "tokenizer.json").read_bytes())


def test_byte_level(tmp_path: Path) -> None:
    found = read(tokenizer.byte_level(tmp_path))
    assert found.token_bytes[0] == b""  # special
    assert sorted(found.token_bytes[1:257]) == [bytes([byte]) for byte in range(256)]
    assert found.token_bytes[257:] == [b"he", b"hel", b" he", b"<note>"]
    assert found.eos_token == tokenizer.BYTE_LEVEL_EOS
    assert found.notes == ()


def test_byte_fallback(tmp_path: Path) -> None:
    found = read(tokenizer.byte_fallback(tmp_path))
    assert found.token_bytes[:3] == [b"", b"", b""]
    assert found.token_bytes[3:259] == [bytes([byte]) for byte in range(256)]
    assert found.token_bytes[259:] == [b" ", b"a", b" a"]
    assert found.eos_token == 2


@pytest.mark.parametrize("text", ["hello he", "né\n", "<note> hel", "日本"])
def test_tokens_of_a_text_join_to_the_text(tmp_path: Path, text: str) -> None:
    folder = tokenizer.byte_level(tmp_path)
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    assert b"".join(read(folder).token_bytes[token] for token in ids) == text.encode()


def test_other_decoders_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="decoder WordPiece is not supported"):
        read(tokenizer.word_piece(tmp_path))


def test_what_cannot_be_bytes_is_noted_and_empty(tmp_path: Path) -> None:
    path = tokenizer.byte_level(tmp_path) / "tokenizer.json"
    config = json.loads(path.read_text())
    config["model"]["vocab"]["日"] = 300
    config["added_tokens"] = []
    found = tokens.read_vocabulary(json.dumps(config).encode())
    assert found.token_bytes[300] == b""
    assert len(found.token_bytes) == 301  # holes are empty too
    assert "token 300" in found.notes[0]
    assert found.eos_token == 0
    assert "token 0 is used as" in found.notes[1]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"model":{}}',
        b'{"model":{"vocab":{"a":"b"}},"decoder":{"type":"ByteLevel"}}',
        b'{"model":{"vocab":{}},"decoder":{"type":"Sequence"}}',
        b'{"model":{"vocab":{}},"decoder":{"type":"ByteLevel"},"added_tokens":[{"id":0}]}',
    ],
)
def test_other_files_are_refused(content: bytes) -> None:
    with pytest.raises(UsageError, match=r"not a tokenizer\.json"):
        tokens.read_vocabulary(content)


def test_bare_names_are_refused_with_a_hint() -> None:
    with pytest.raises(NotFoundError) as caught:
        tokens.tokenizer_file("llama")
    assert "this machine" in caught.value.hint


def test_trie_is_cached_by_content(tmp_path: Path) -> None:
    folder = tokenizer.byte_level(tmp_path / "a")
    first = vocabulary.load(str(folder), tmp_path)
    (cached,) = (tmp_path / "tries").glob("*-8.trie")
    cached.write_bytes(b"x" * 28)  # no trie: proves that the file is read
    assert vocabulary.load(str(folder / "tokenizer.json"), tmp_path).tries["v1"] == b"x" * 28
    other = tokenizer.byte_fallback(tmp_path / "b")
    assert vocabulary.load(str(other), tmp_path).tries["v1"] != first.tries["v1"]
    assert first.vocab_size == tokenizer.BYTE_LEVEL_SIZE


@pytest.mark.parametrize(
    ("make", "field", "part", "token"),
    [
        (tokenizer.byte_fallback, "pre_tokenizer", {"type": "Metaspace", "prepend_scheme": "first"}, b"a"),
        (tokenizer.byte_fallback, "pre_tokenizer", {"type": "Metaspace", "prepend_scheme": "always"}, b"a"),
        (tokenizer.byte_fallback, "normalizer", {"type": "Prepend", "prepend": "▁"}, b"a"),
        (tokenizer.byte_level, "pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": True}, b"he"),
    ],
)
def test_tokenize_adds_no_space(
    tmp_path: Path, make: Callable[[Path], Path], field: str, part: dict[str, Any], token: bytes
) -> None:
    path = make(tmp_path) / "tokenizer.json"
    config = json.loads(path.read_text())
    defaults = {"replacement": "▁", "split": False} if part["type"] == "Metaspace" else {"trim_offsets": True}
    config |= {"normalizer": None, field: defaults | part}
    path.write_text(json.dumps(config))
    ids = array("I", host_tokenizer.load(path, b"")(token))
    assert [read(tmp_path).token_bytes[token_id] for token_id in ids] == [token]


@pytest.mark.parametrize(
    "text",
    [b"he\xffhel", b"\xe2\x82", b"\xe2\x82 he \xf0\x9f", b"\xed\xa0\x80he", "hel\ufffd".encode(), b"", b"\xff" * 9],
)
def test_bytes_that_are_no_text_come_out_as_they_went_in(tmp_path: Path, text: bytes) -> None:
    folder = tokenizer.byte_level(tmp_path)
    loaded = vocabulary.load(str(folder), tmp_path)
    token_bytes = read(folder).token_bytes
    ids = array("I", host_tokenizer.load(loaded.tokenizer_json, loaded.tries["v2"])(text))
    assert b"".join(token_bytes[token] for token in ids) == text


def test_greedy_takes_the_longest() -> None:
    vocab = [b"", b"\xff", b"\xff\xfe", b"\xff\xfe\xfd\xfc", b"\xfe", *(bytes([byte, byte]) for byte in range(256))]
    blob = trie.serialize(vocab, TokenId(0))
    assert list(greedy.tokenize(blob, b"\xff\xfe\xfd\xfc\xff\xfe\xff\xff\xff")) == [3, 2, 5 + 255, 1]
    with pytest.raises(UsageError, match="no token begins with the byte 0xfd"):
        greedy.tokenize(blob, b"\xff\xfd")


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    folder, file = tokenizer.byte_level(tmp_path), tmp_path / "file"
    file.touch()
    assert vocabulary.load(str(folder), file).tries["v1"] == vocabulary.load(str(folder), tmp_path).tries["v1"]
