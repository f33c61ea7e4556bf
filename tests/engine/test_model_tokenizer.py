"""The engine's tokenizer is loaded by the first call that needs the tokenizer."""

from pathlib import Path

from aici_base.tokenizer.tokens import read_vocabulary
from aici_engine.model_tokenizer import ModelTokenizer
from tests.engine.support import EOS, EOT, encode, write_tokenizer


def test_names_of_special_tokens_are_known_without_the_tokenizer(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    added = read_vocabulary(path.read_bytes()).added
    tokenizer = ModelTokenizer(path, added)
    path.unlink()  # a tokenizer that is loaded raises from here on
    assert {tokenizer.name_of(EOS), tokenizer.name_of(EOT)} <= {*added.values()}
    assert tokenizer.token_named(tokenizer.name_of(EOT)) == EOT


def test_other_names_and_texts_load_the_tokenizer(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    tokenizer = ModelTokenizer(tmp_path / "tokenizer.json", {})
    assert tokenizer.encode("hello") == encode("hello")
    assert (tokenizer.name_of(encode("h")[0]), tokenizer.token_named("h")) == ("h", encode("h")[0])
    assert tokenizer.token_named("not a token") is None
    assert tokenizer.name_of(max(EOS, EOT)) != ""
