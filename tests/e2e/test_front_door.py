"""`import aici` with the default model."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import aici
from aici_controllers.catalog import guest_path
from tests.support.processes import alive, descendants, wait_until

pytestmark = pytest.mark.e2e

PROMPT = "The answer is "


@dataclass
class Person:
    name: str
    age: int


@pytest.fixture(scope="module")
def llm() -> Iterator[aici.LLM]:
    with aici.LLM(max_context=1024) as llm:
        yield llm


def test_a_regex(llm: aici.LLM) -> None:
    result = llm.generate(PROMPT, aici.regex(r"\d\d"))
    assert result.text.isdigit()
    assert result.value == result.text
    assert (result.finish_reason, result.error, result.forks) == (aici.FinishReason.STOP, None, ())
    assert result.usage.sampled_tokens == len(result.tokens) == 2
    assert "regex" in result.logs


def test_a_dataclass_comes_back_as_an_instance(llm: aici.LLM) -> None:
    person = llm.generate("A person: ", aici.json_schema(Person)).value
    assert isinstance(person, Person)
    assert isinstance(person.age, int)


def test_a_text_that_ended_too_early_has_no_value(llm: aici.LLM) -> None:
    result = llm.generate("A person: ", aici.json_schema(Person), max_tokens=3)
    assert result.finish_reason is aici.FinishReason.LENGTH
    with pytest.raises(aici.UnfinishedError, match="max_tokens"):
        _ = result.value


def test_a_list_of_prompts_keeps_its_order(llm: aici.LLM, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = [f"{number}, {number + 1}, " for number in range(20)]
    together = llm.generate(prompts, aici.regex("[0-9]{1,3}"), progress=True)
    assert [result.prompt for result in together] == prompts
    assert [result.text for result in together[:3]] == [
        llm.generate(prompt, aici.regex("[0-9]{1,3}")).text for prompt in prompts[:3]
    ]
    assert "20/20" in capsys.readouterr().err


def test_a_stream_ends_with_a_finish_event(llm: aici.LLM) -> None:
    events = list(llm.stream("Once upon a time", max_tokens=5))
    assert isinstance(events[-1], aici.FinishEvent)
    text = "".join(event.text for event in events if isinstance(event, aici.TokenEvent))
    assert text + events[-1].tail == events[-1].text


def test_a_stream_that_is_closed_ends_its_request(llm: aici.LLM) -> None:
    stream = llm.stream("Once upon a time", max_tokens=900)
    stream.close()
    assert stream.result().finish_reason is aici.FinishReason.ABORT


def test_a_guest_that_fails_raises_its_error(llm: aici.LLM) -> None:
    broken = aici.script("throw new Error('no such luck')", "javascript")
    with pytest.raises(aici.ControllerError, match="no such luck"):
        llm.generate("", broken)
    with pytest.raises(aici.ControllerError, match="no such luck"):
        list(llm.stream("", broken))
    [result] = llm.generate([""], broken)
    assert "no such luck" in str(result.error)
    with pytest.raises(aici.ControllerError):
        _ = result.value


def test_a_wrong_prompt_in_a_list_raises(llm: aici.LLM) -> None:
    with pytest.raises(aici.UsageError, match="tokens"):
        llm.generate(["short", "long " * 1500])


def test_variables_are_reported(llm: aici.LLM) -> None:
    result = llm.generate("", aici.script("await fixed('x'); setVar('answer', '42')", "javascript"))
    assert result.variables == {"answer": "42"}


def test_without_controllers_no_process_starts(llm: aici.LLM) -> None:
    before = descendants(os.getpid())
    with aici.LLM(max_context=512, controllers=False) as plain:
        assert descendants(os.getpid()) <= before
        assert plain.generate(PROMPT, max_tokens=4).text == llm.generate(PROMPT, max_tokens=4).text
        with pytest.raises(aici.UsageError, match="no controller runtime"):
            plain.generate(PROMPT, aici.regex("a"))


def test_a_process_that_never_closes_ends_well() -> None:
    code = "import aici; print(aici.LLM().generate('Hi', aici.regex('[a-z]{3}')).text, end='')"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr, len(done.stdout)) == (0, "", 3)


@pytest.mark.parametrize("with_context", [True, False])
def test_ctrl_c_ends_everything(with_context: bool) -> None:
    code = (
        "import aici, contextlib; llm = aici.LLM(); print('up', flush=True)\n"
        f"with llm if {with_context} else contextlib.nullcontext():\n"
        "    llm.generate(['Once'] * 40, aici.regex('(a|b)*'), max_tokens=5000)"
    )
    command = [sys.executable, "-P", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        below = descendants(process.pid)
        assert below
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.endswith("KeyboardInterrupt\n")
    assert wait_until(lambda: not alive(below), 20)


def test_a_forked_child_leaves_the_model_of_its_parent_alone() -> None:
    code = (
        "import aici, os, sys\n"
        "llm = aici.LLM(max_context=256)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try: llm.generate('a')\n"
        "    except aici.UsageError as error: print(error, flush=True)\n"
        "    sys.exit(0)\n"
        "print(os.waitpid(child, 0)[1], flush=True)\n"
        "print(llm.generate('a', aici.regex('[0-9]')).text.isdigit())\n"
    )
    ran = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "this LLM belongs to the process that made the LLM\n0\nTrue\n"


def test_a_module_file_that_changes_is_another_controller(llm: aici.LLM, tmp_path: Path) -> None:
    file = tmp_path / "a.wasm"
    file.write_bytes(guest_path("regex").read_bytes())
    assert llm.generate(PROMPT, aici.controller(file, "ab")).text == "ab"
    file.write_bytes(guest_path("choices").read_bytes())
    assert llm.generate(PROMPT, aici.controller(file, '["cd"]')).text == "cd"
