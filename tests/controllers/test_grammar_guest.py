"""The guest `grammar`: its table of sentences, its reports on inputs, and long texts."""

import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

from aici_controllers.catalog import guest_path
from tests.support.fake_host import FakeHost, GuestModule, GuestStoppedError
from tests.support.guests import shipped_guest
from tests.support.tool_guest import ToolGuest

_TABLE = Path(__file__).resolve().parents[2] / "controllers" / "guests" / "grammar" / "cases.toml"
_CASES: dict[str, list[dict[str, Any]]] = tomllib.loads(_TABLE.read_text())
_BYTES = [bytes([byte]) for byte in range(256)]
_EOS = 256
_LIST = '%%\ns : "[" items "]" | NAME ;\nitems : s | items "," s ;\nNAME : "/[a-z]+/" ;\nSKIP : "/[ \\n]+/" ;\n'


@pytest.fixture(scope="module")
def module() -> GuestModule:
    return shipped_guest("grammar")


@pytest.fixture(scope="module")
def tool(module: GuestModule) -> ToolGuest:
    assert module
    return ToolGuest(guest_path("grammar"))


def _is_sentence(module: GuestModule, grammar: str, text: str) -> bool:
    """Feed `text` one byte per step, as a sampler that wants exactly this text."""
    host = FakeHost(module, [*_BYTES, b""], eos=_EOS, arg=grammar.encode())
    host.init_prompt()
    for number, byte in enumerate(text.encode(), 1):
        if host.mid_process() == "Stop" or byte not in host.allowed():
            return False
        if host.post_process([byte])["stop"]:
            return number == len(text.encode())
    return host.mid_process() == "Stop" or _EOS in host.allowed()


@pytest.mark.parametrize("case", _CASES["case"], ids=lambda case: case["name"])
def test_cases(module: GuestModule, tool: ToolGuest, case: dict[str, Any]) -> None:
    texts = [*case["yes"], *case["no"]]
    question = {"accepts": {"grammar": case["grammar"], "inputs": texts}}
    told = [answer["accepted"] for answer in tool.ask(question)["answers"]]
    assert dict(zip(texts, told, strict=True)) == {text: text in case["yes"] for text in texts}
    assert [text for text in case["yes"] if not _is_sentence(module, case["grammar"], text)] == []
    assert [text for text in case["no"] if _is_sentence(module, case["grammar"], text)] == []


@pytest.mark.parametrize("case", _CASES["error"], ids=lambda case: case["says"][0])
def test_errors(module: GuestModule, tool: ToolGuest, case: dict[str, Any]) -> None:
    with pytest.raises(GuestStoppedError) as stopped:
        FakeHost(module, [b"a", b""], eos=1, arg=case["grammar"].encode())
    problem = tool.ask({"accepts": {"grammar": case["grammar"], "input": "a"}})["problem"]
    assert str(stopped.value) == f"grammar error: {problem}\n"
    for words in case["says"]:
        assert words in problem


def test_where_an_input_fails(tool: ToolGuest) -> None:
    def ask(text: str) -> Any:
        return tool.ask({"accepts": {"grammar": _LIST, "input": text}})

    def answer(at: int, line: int, column: int, expected: list[str], *, accepted: bool, complete: bool) -> Any:
        place = {"at": at, "line": line, "column": column}
        return {"accepted": accepted, **place, "expected": expected, "complete": complete}

    assert ask("[a,\nb;c]") == answer(5, 2, 2, ['"]"', '","'], accepted=False, complete=False)
    assert ask("[a,") == answer(3, 1, 4, ['"["', "NAME"], accepted=False, complete=False)
    assert ask("[a]") == answer(3, 1, 4, ["end of input"], accepted=True, complete=True)
    assert ask("[a] ]") == answer(4, 1, 5, ["end of input"], accepted=False, complete=True)
    assert ask("é") == answer(0, 1, 1, ['"["', "NAME"], accepted=False, complete=False)


def test_tokens_are_taken_back(module: GuestModule) -> None:
    vocabulary = [b"[", b"]", b",", b"a", b" ", b"[[a", b"],", b"a,a]", b"]]", b""]
    host = FakeHost(module, vocabulary, eos=9, arg=_LIST.encode())
    seen: list[set[int]] = []
    text = [5, 2, 7, 2, 4, 0, 3, 1, 8 - 7]
    for token in text:
        host.mid_process()
        seen.append(host.allowed())
        assert token in seen[-1]
        host.post_process([token])
    for back in range(1, len(text) + 1):
        host.post_process([], backtrack=1)
        host.mid_process()
        assert host.allowed() == seen[-back]


def test_long_texts_stay_within_memory(module: GuestModule) -> None:
    """Hundreds of thousands of different stacks, forgotten again."""
    host = FakeHost(module, [b"[", b"[a,", b"]", b",", b"a", b""], eos=5, arg=_LIST.encode())
    host.post_process([0, 4])
    levels = random.Random(1)
    for _ in range(1000):
        host.post_process([3, *(levels.randrange(2) for _ in range(100)), 4])
        host.mid_process()
        assert host.allowed() == {2, 3, 4}
        host.post_process([2] * 100)
        host.mid_process()
        assert host.allowed() == {2, 3}
    host.post_process([], backtrack=3)
    host.post_process([2, 2, 2, 2])
    assert host.mid_process() == {"SampleWithBias": {}}
    assert host.allowed() == {5}


def test_a_text_that_is_nested_too_deeply_ends_with_a_message(module: GuestModule) -> None:
    host = FakeHost(module, [b"[" * 200, b"a", b""], eos=2, arg=_LIST.encode())

    def nest() -> None:
        for _ in range(40):
            host.post_process([0] * 100)
            host.mid_process()

    with pytest.raises(GuestStoppedError, match="nested too deeply"):
        nest()


def test_the_guest_is_small_and_imports_little(module: GuestModule) -> None:
    imports = {(entry.module, entry.name) for entry in module.module.imports}
    assert {name for name_space, name in imports if name_space != "env"} == {"fd_write"}
    assert guest_path("grammar").stat().st_size < 690_000
