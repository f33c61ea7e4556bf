"""The files beside a model's weights may be broken in any way: the error names the file."""

import json
from pathlib import Path
from typing import Any

import pytest

from aici_base.errors import UsageError
from aici_engine.chat.template import ChatTemplate, chat_prompt
from aici_engine.config import EngineConfig
from aici_engine.engine import Engine
from aici_engine.model_files import check_model_files, read_settings, read_text
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
    with pytest.raises(UsageError, match=r"chat_template\.jinja cannot be read as UTF-8"):
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


SECRET = '{"chat_template": "secret", "eos_token": "secret"}'


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "chat_template.jinja", "tokenizer.json"])
def test_a_link_out_of_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    """What a model's files say reaches clients: /tokenizer_info shows the template and the settings."""
    folder = tmp_path / "model"
    folder.mkdir()
    write_tokenizer(folder)
    (tmp_path / "secret").write_text(SECRET)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("../secret")
    with pytest.raises(UsageError, match=f"{name} is a link to a file outside of its folder"):
        check_model_files(folder)
    if name != "tokenizer.json":
        with pytest.raises(UsageError, match="outside of its folder"):
            read_text(folder / name)


def test_links_of_the_hubs_cache_and_inside_of_the_folder_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots" / "c0ffee"
    (folder / "additional_chat_templates").mkdir(parents=True)
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "1234").write_text(SECRET)
    (folder / "chat_template.jinja").symlink_to("../../blobs/1234")
    (folder / "additional_chat_templates" / "tool_use.jinja").symlink_to("../../../blobs/1234")
    (folder / "tokenizer_config.json").symlink_to("chat_template.jinja")
    check_model_files(folder)
    assert read_text(folder / "chat_template.jinja") == SECRET
    assert read_settings(folder / "tokenizer_config.json")["eos_token"] == "secret"
    assert ChatTemplate.of(folder) is not None


def test_settings_of_millions_of_values_are_not_read(tmp_path: Path) -> None:
    """Eight megabytes of empty lists take a quarter of a gigabyte in Python."""
    (tmp_path / "config.json").write_text(f"[{'[],' * 2_700_000}[]]")
    with pytest.raises(UsageError, match=r"config\.json has 5,\d{3},\d{3} values or more: at most 2,000,000 are read"):
        read_settings(tmp_path / "config.json")


@pytest.mark.parametrize(("name", "size"), [("tokenizer.json", 1 << 40), ("chat_template.jinja", 1 << 30)])
def test_a_file_that_no_model_has_is_not_read(name: str, size: int, tmp_path: Path) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(size)
    with pytest.raises(UsageError, match=rf"{name} has [\d,]+ bytes: at most"):
        ModelVocabulary(tmp_path) if name == "tokenizer.json" else ChatTemplate.of(tmp_path)
