"""Every public function has an example, and the examples run."""

import asyncio
import doctest
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import aici

pytestmark = pytest.mark.e2e

FUNCTIONS = {name: getattr(aici, name) for name in aici.__all__ if inspect.isfunction(getattr(aici, name))}
CLASSES = (aici.LLM, aici.AsyncLLM, aici.Stream, aici.Result, aici.ChatResult, aici.SamplingParams)
SAME_AS_LLM = {"model", "generate", "stream", "chat", "chat_stream", "close"}


def public(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in vars(kind).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            yield f"{kind.__name__}.{name}", member


DOCUMENTED: dict[str, Any] = {
    "aici": aici,
    **FUNCTIONS,
    **{kind.__name__: kind for kind in CLASSES},
    **dict(member for kind in (aici.LLM, aici.Stream, aici.Result) for member in public(kind)),
}


@pytest.fixture(scope="module")
def llm() -> Iterator[aici.LLM]:
    with aici.LLM() as llm:
        yield llm


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_example_of(llm: aici.LLM, name: str) -> None:
    thing = DOCUMENTED[name]
    if name == "Stream.close":
        assert inspect.getdoc(thing)
        return
    globs = {"aici": aici, "llm": llm, "asyncio": asyncio}
    [test] = doctest.DocTestFinder(recurse=False).find(thing, name, globs=globs)
    assert test.examples, f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
    assert runner.run(test).failed == 0


def test_the_async_methods_are_those_of_llm() -> None:
    both = [{name.partition(".")[2]: member for name, member in public(kind)} for kind in (aici.LLM, aici.AsyncLLM)]
    assert both[0].keys() == both[1].keys() == SAME_AS_LLM
    for name in ("generate", "stream", "chat", "chat_stream"):
        parameters = [inspect.signature(methods[name]).parameters for methods in both]
        assert list(parameters[0]) == list(parameters[1])
