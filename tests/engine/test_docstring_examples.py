"""The examples in the docstrings of the engine's public classes and functions run."""

import doctest
import sys
from pathlib import Path
from typing import Any

import pytest

from aici_engine.config import EngineConfig
from aici_engine.engine import Engine
from aici_engine.model.tensor_source import FolderSource
from aici_engine.model.tensor_store import TensorStore
from aici_engine.native.stage_source import describe
from aici_engine.parameter import Api
from aici_engine.request import Request
from aici_engine.sampling_params import SamplingParams, from_options, to_request


@pytest.mark.parametrize(
    "documented",
    [Engine.generate, Engine.submit, EngineConfig, FolderSource, TensorStore, describe, from_options, to_request],
)
def test_the_examples_run(documented: Any, engine: Engine, tiny_model: Path, tmp_path: Path) -> None:
    names = {
        **vars(sys.modules[documented.__module__]),
        "engine": engine,
        "folder": tmp_path if documented is TensorStore else tiny_model,
        "model_dir": tiny_model,
        "Api": Api,
        "Engine": Engine,
        "FolderSource": FolderSource,
        "Request": Request,
        "SamplingParams": SamplingParams,
    }
    [example] = doctest.DocTestFinder(recurse=False).find(documented, globs=names)
    assert example.examples
    output: list[str] = []
    results = doctest.DocTestRunner().run(example, out=output.append)
    assert results.failed == 0, "".join(output)
