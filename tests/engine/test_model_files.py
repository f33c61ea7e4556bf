"""The files beside a model's weights may be broken in any way: the error names the file."""

import json
from pathlib import Path
from typing import Any

import pytest

from aici_base.errors import UsageError
from aici_engine.chat.template import ChatTemplate, chat_prompt
from aici_engine.config import EngineConfig
from aici_engine.engine import Engine
from aici_engine.model_files import read_settings
from aici_engine.vocabulary import ModelVocabulary
from tests.engine.support import EOS, write_tiny_model, write_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path)


def change(path: Path, **settings: Any) -> None:
    path.write_text(json.dumps(read_settings(path) | settings))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
def test_a_broken_file_is_named(name: str, content: bytes, folder: Path) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(UsageError, match="tokenizer.json" if name == "tokenizer.json" else name):
        Engine(EngineConfig(model_dir=folder))
    if name.startswith("tokenizer"):
        with pytest.raises(UsageError):
            ModelVocabulary(folder)


@pytest.mark.parametrize("bos", [3, ["a"], {"x": 1}, {"content": 4}, "none such"])
def test_a_start_token_that_is_none_is_no_failure(bos: Any, folder: Path) -> None:
    change(folder / "tokenizer_config.json", bos_token=bos)
    with Engine(EngineConfig(model_dir=folder, num_pages=2)) as engine:
        assert engine.start_token == EOS


@pytest.mark.parametrize("template", [5, {"a": 1}, [{"name": "default"}], ["x"]])
def test_a_template_that_is_no_text_is_told(template: Any, tmp_path: Path) -> None:
    change(tmp_path / "tokenizer_config.json", chat_template=template)
    with pytest.raises(UsageError, match=f"the chat template of {tmp_path.name}"):
        ChatTemplate.of(tmp_path)


def test_a_template_that_is_no_utf8_is_told(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=f"the chat template of {tmp_path.name}"):
        ChatTemplate.of(tmp_path)


def test_no_prompt_of_a_chat_is_cut(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    change(tmp_path / "tokenizer.json", truncation=cut)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert len(chat_prompt(tmp_path, [{"role": "user", "content": "hello"}])) == 5


def test_a_token_of_an_impossible_number_is_refused(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    added = read_settings(tmp_path / "tokenizer.json")["added_tokens"]
    change(tmp_path / "tokenizer.json", added_tokens=[*added, added[0] | {"id": 1 << 40, "content": "x"}])
    with pytest.raises(UsageError, match="1099511627776"):
        ModelVocabulary(tmp_path)


def test_a_model_without_layers_is_refused(folder: Path) -> None:
    change(folder / "config.json", num_hidden_layers=0)
    with pytest.raises(UsageError, match="no layers"):
        Engine(EngineConfig(model_dir=folder))


def test_an_end_token_that_the_model_has_not_is_none(folder: Path) -> None:
    """-1 means no token in old configurations. As a Python index, -1 would be the last token."""
    change(folder / "generation_config.json", eos_token_id=[-1, 5000, int(EOS)])
    with Engine(EngineConfig(model_dir=folder, num_pages=2)) as engine:
        assert engine.eos_tokens == {EOS}
