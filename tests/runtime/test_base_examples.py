"""The examples in the docstrings of `aici_base` are run."""

import doctest
from pathlib import Path
from types import ModuleType

import gguf as official
import pytest

from aici_base import cache_files, errors
from aici_base.tokenizer import gguf, gguf_tokenizer, tokenizer_sources, tokens
from tests.runtime.support import tokenizer

MODULES = (cache_files, errors, gguf, gguf_tokenizer, tokenizer_sources, tokens)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.__name__))
def test_examples(module: ModuleType, tmp_path: Path) -> None:
    folder = tokenizer.byte_level(tmp_path / "tokenizer")
    names = {
        "folder": tmp_path,
        "tokenizer_folder": folder,
        "tokenizer_json": (folder / "tokenizer.json").read_bytes(),
        "gguf_file": _gguf_file(tmp_path / "model.gguf"),
    }
    assert doctest.testmod(module, extraglobs=names).failed == 0


def _gguf_file(path: Path) -> Path:
    writer = official.GGUFWriter(path, "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
