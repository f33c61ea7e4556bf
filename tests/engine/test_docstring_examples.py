"""The examples in the docstrings of the engine's public classes and functions run."""

import doctest
from pathlib import Path
from typing import Any

import pytest

from aici_engine.config import EngineConfig
from aici_engine.engine import Engine
from aici_engine.parameter import Api
from aici_engine.request import Request
from aici_engine.sampling_params import SamplingParams, from_options, to_request


@pytest.mark.parametrize("documented", [Engine.generate, Engine.submit, EngineConfig, from_options, to_request])
def test_the_examples_run(documented: Any, engine: Engine, tiny_model: Path) -> None:
    names = {
        "engine": engine,
        "model_dir": tiny_model,
        "Api": Api,
        "Engine": Engine,
        "from_options": from_options,
        "to_request": to_request,
        "EngineConfig": EngineConfig,
        "Request": Request,
        "SamplingParams": SamplingParams,
    }
    [example] = doctest.DocTestFinder(recurse=False).find(documented, globs=names)
    assert example.examples
    output: list[str] = []
    results = doctest.DocTestRunner().run(example, out=output.append)
    assert results.failed == 0, "".join(output)
