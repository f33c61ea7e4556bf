"""The example in the docstring of `aici_runtime.client.Runtime` is run."""

import doctest
from pathlib import Path

from aici_runtime import client
from tests.runtime.support import wat


def test_example(byte_level: Path, cache_dir: Path) -> None:
    names = {"tokenizer_folder": byte_level, "folder": cache_dir, "wasm": wat.plain()}
    assert doctest.testmod(client, extraglobs=names).failed == 0
