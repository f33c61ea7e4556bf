"""Arguments of a wrong type or form raise UsageError: no other error, no hang, and no silent other meaning."""

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import aici
from aici.backend import Call, check_messages, prompts_of
from aici.remote.connection import Server, encode
from aici.remote.workers import Workers
from aici.sampling import sampling_params
from aici.schemas import described
from aici.tools import tools_of
from aici_controllers.catalog import guest_path

SAMPLING = aici.SamplingParams()


@pytest.mark.parametrize("prompt", [None, 3, {"role": "user"}, b"a", [], (), [1, 2], ["a"], ["a", None]])
def test_no_prompt(prompt: Any) -> None:
    with pytest.raises(aici.UsageError):
        Call(prompt=prompt, sampling=SAMPLING, constraint=None)


@pytest.mark.parametrize("prompts", [None, 3, b"ab", {"role": "user"}])
def test_no_prompts(prompts: Any) -> None:
    with pytest.raises(aici.UsageError, match="a prompt is a text or a list of texts"):
        prompts_of(prompts)


@pytest.mark.parametrize("messages", ["hi", None, [], [1], ["a"]])
def test_no_conversation(messages: Any) -> None:
    with pytest.raises(aici.UsageError):
        check_messages(messages)


@pytest.mark.parametrize("constraint", ["[0-9]", aici.regex, aici.UsageError])
def test_no_constraint(constraint: Any) -> None:
    with pytest.raises(aici.UsageError, match="a constraint is made by"):
        sampling_params(None, {}, constraint)


def test_no_sampling_params() -> None:
    wrong: Any = {"max_tokens": 3}
    with pytest.raises(aici.UsageError, match="sampling is a SamplingParams, not dict"):
        sampling_params(wrong, {}, None)


@pytest.mark.parametrize(
    "options",
    [
        {"stop": None},
        {"stop": 3},
        {"temperature": 10**400},
        {"temperature": -(10**5000)},
        {"top_k": -(10**5000)},
        {"logit_bias": {1: 10**5000}},
    ],
)
def test_parameters_that_no_sampler_takes(options: Any) -> None:
    with pytest.raises(aici.UsageError):
        sampling_params(None, options, None)


def test_texts_of_constraints() -> None:
    wrong: Any = 3
    for make in (aici.regex, aici.grammar, aici.substring, aici.choice, aici.script, aici.controller):
        with pytest.raises(aici.UsageError, match="not int"):
            make(wrong)
    with pytest.raises(aici.UsageError, match="a choice is a text, not list") as caught:
        aici.choice(*[["a", "b"]])  # type: ignore[list-item]  # the mistake under test
    assert "choice(*texts)" in caught.value.hint
    with pytest.raises(aici.UsageError, match="surrogate"):
        aici.grammar("%start \ud800")


@pytest.mark.parametrize("path", ["/\0.wasm", "~no-such-user/a.wasm", "/"])
def test_paths_that_cannot_be_read(path: str) -> None:
    with pytest.raises(aici.NotFoundError, match="cannot be read"):
        aici.controller(path)


def test_a_controller_is_what_the_file_held(tmp_path: Path) -> None:
    file = tmp_path / "a.wasm"
    wasm = guest_path("regex").read_bytes()
    file.write_bytes(wasm)
    constraint = aici.controller(file, "a")
    file.unlink()
    assert constraint.controller == wasm


def test_a_class_that_refuses_a_complete_text_is_not_unfinished() -> None:
    @dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("odd")

    shape = described(Even)
    with pytest.raises(aici.UsageError, match="Even refuses what its schema allows: odd"):
        shape.parse('{"number": 3}')
    with pytest.raises(json.JSONDecodeError):
        shape.parse('{"number": ')


class Callable:
    def __call__(self, number: int) -> int:
        """Return the number."""
        return number


@pytest.mark.parametrize(
    "tools", [[max], [int], [{"name": 3}], [{"name": "a", "parameters": 3}], [{"name": "a", "description": 4}], len]
)
def test_no_tools(tools: Any) -> None:
    with pytest.raises(aici.UsageError):
        tools_of(tools)


def test_an_object_that_is_called_is_described_by_the_method() -> None:
    assert tools_of([Callable()])["Callable"].parameters["properties"] == {"number": {"type": "integer"}}


@pytest.mark.parametrize("url", ["http://[::1", 3, "http://x/a b", "http://x/é", "http://é\ud800", b"http://x"])
def test_no_address(url: Any) -> None:
    with pytest.raises(aici.UsageError, match="is no server's address"):
        Server(url)


@pytest.mark.parametrize("key", ["secret\r\nX: y", "ключ", 3])
def test_no_key(key: Any) -> None:
    with pytest.raises(aici.UsageError, match="the API key is no line of ASCII") as caught:
        Server("http://x", api_key=key)
    assert str(key) not in str(caught.value)


@pytest.mark.parametrize("content", [b"x", {1}])
def test_no_json(content: object) -> None:
    with pytest.raises(aici.UsageError, match="not JSON"):
        encode({"content": content})


def test_work_in_a_forked_child_has_threads() -> None:
    workers = Workers(2)
    first = threading.Event()
    workers.submit(first.set)
    assert first.wait(10)
    child = os.fork()
    if child == 0:
        done = threading.Event()
        workers.submit(done.set)
        os._exit(0 if done.wait(5) else 1)
    _, status = os.waitpid(child, 0)
    workers.close()
    assert status == 0
