"""The examples in docstrings are run, if they need nothing but their module; the others have tests of their own."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import aici
import aici_base
import aici_cli
import aici_controllers
import aici_engine
import aici_runtime

WITH_NAMES = {
    "aici",
    "aici.async_llm",
    "aici.chat",
    "aici.constraints",
    "aici.llm",
    "aici.results",
    "aici.stream",
    "aici_base.cache_files",
    "aici_base.tokenizer.gguf",
    "aici_base.tokenizer.tokenizer_sources",
    "aici_base.tokenizer.tokens",
    "aici_engine.config",
    "aici_engine.engine",
    "aici_engine.model.tensor_source",
    "aici_engine.model.tensor_store",
    "aici_engine.native.stage_source",
    "aici_engine.sampling_params",
    "aici_runtime.client",
}
"""Their examples need a model, a folder or a runtime: tests/e2e/test_front_door_examples.py,
tests/engine/test_docstring_examples.py, tests/runtime/test_base_examples.py and test_client_examples.py."""


def documented_modules() -> list[str]:
    found = []
    for package in (aici, aici_base, aici_cli, aici_controllers, aici_engine, aici_runtime):
        folder = Path(package.__path__[0])
        for path in folder.rglob("*.py"):
            if re.search(r"^ *>>> ", path.read_text("utf-8"), re.MULTILINE):
                parts = path.relative_to(folder.parent).with_suffix("").parts
                found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(found)


@pytest.mark.parametrize("name", [name for name in documented_modules() if name not in WITH_NAMES])
def test_examples(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


def test_each_module_whose_examples_need_names_has_examples() -> None:
    assert set(documented_modules()) >= WITH_NAMES
