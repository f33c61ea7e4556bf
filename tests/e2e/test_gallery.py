"""The scripts in examples/, on the default model: every script keeps its promise for any output of the model."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from aici_controllers.catalog import SCRIPT_GUESTS, guest_path
from aici_engine.config import SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import Event, FinishEvent, ForkEvent
from aici_engine.request import ControllerCall, Request
from aici_runtime.client import Runtime
from tests.support.warm import warm_aici

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def run_example(engine: Engine, runtime: Runtime) -> Any:
    """Runs a script; returns the texts of the forks, and all variables."""

    def run(name: str, **sampling: Any) -> tuple[list[str], dict[str, str]]:
        script = EXAMPLES / name
        module = runtime.mk_module(guest_path(SCRIPT_GUESTS[script.suffix]).read_bytes()).module_id
        params = SamplingParams(**({"temperature": 0.0, "seed": 1} | sampling))
        call = ControllerCall(module, script.read_text())
        handle = engine.submit(Request(prompt=[engine.start_token], sampling=params, controller=call))
        ends: dict[int, FinishEvent] = {}
        for event in handle.events():
            fork, inner = _unwrapped(event)
            if isinstance(inner, FinishEvent):
                ends[fork] = inner
        assert all(end.error is None for end in ends.values()), [end.logs for end in ends.values()]
        assert {str(end.reason) for end in ends.values()} == {"aici-stop"}
        return [ends[fork].text for fork in sorted(ends)], _variables(ends)

    return run


def _unwrapped(event: Event) -> tuple[int, Event]:
    return (event.fork, event.event) if isinstance(event, ForkEvent) else (0, event)


def _variables(ends: dict[int, FinishEvent]) -> dict[str, str]:
    """Return the variables. A single fork writes a variable in these scripts, so the order of the forks does not
    matter."""
    values: dict[str, str] = {}
    for end in ends.values():
        for command in end.storage:
            write = command["WriteVar"]
            before = values.get(write["name"], "") if write["op"] == "Append" else ""
            values[write["name"]] = before + bytes.fromhex(write["value"]).decode()
    return values


def test_numbered_list(run_example: Any) -> None:
    [text], variables = run_example("numbered_list.js")
    lines = text.splitlines()
    assert len(lines) == 6
    for number, line in enumerate(lines[1:], 1):
        assert re.fullmatch(rf"{number}\. [A-Z][a-z]+( [a-z]*)*", line)
    assert variables["items"].splitlines() == [line.partition(". ")[2] for line in lines[1:]]


def test_cities(run_example: Any) -> None:
    [text], _ = run_example("cities.js")
    cities = text.removeprefix("My favourite cities in Europe, in order: ").removesuffix(".").split(", ")
    known = {"Paris", "Rome", "Berlin", "Madrid", "Vienna", "Lisbon", "Oslo", "Prague"}
    assert len(cities) == len(set(cities) & known) == 4


def test_json_with_retry(run_example: Any) -> None:
    [text], variables = run_example("json_with_retry.py")
    record = json.loads(variables["record"])
    assert 1900 <= record["from"] < record["to"] <= 2025
    assert json.loads(re.sub(r"^.*?(?=\{)", "", text, flags=re.DOTALL)) == record
    assert text.count("{") == 1, "what was wrong was taken back"


def test_scratchpad(run_example: Any) -> None:
    [text], variables = run_example("scratchpad.py")
    assert re.fullmatch(r"Question: [^\n]+\nAnswer: [1-9]\d?\n", text)
    assert variables["thoughts"]
    assert variables["thoughts"].strip() not in text


def test_best_of_n() -> None:
    script = EXAMPLES / "best_of_n"
    flags = ["--json", "--logprobs", "0", "--temperature", "0.9", "--seed", "1"]
    done = warm_aici("run", *flags, str(script / "candidates.js"))
    assert done.returncode == 0, done.stderr
    forks = json.loads(done.stdout)["forks"]
    assert len({fork["text"] for fork in forks}) > 1
    picked = subprocess.run(
        [sys.executable, str(script / "pick.py")], input=done.stdout, capture_output=True, text=True, check=True
    ).stdout.strip()
    means = {fork["text"]: _mean_logprob(fork["tokens"]) for fork in forks}
    assert len(forks) == 4
    assert means[picked] == max(means.values())
    assert all(re.fullmatch(r'A slogan for a small bakery: "[A-Z][a-z]+( [a-z]*){1,7}[.!]?"', text) for text in means)


def _mean_logprob(tokens: list[dict[str, Any]]) -> float:
    logprobs = [token["logprob"] for token in tokens if token["origin"] == "sampled"]
    return sum(logprobs) / len(logprobs)


def test_vote(run_example: Any) -> None:
    texts, variables = run_example("vote.js", temperature=0.8, seed=3)
    assert len(texts) == 5
    votes = Counter(variables[f"vote{voter}"] for voter in range(5))
    winner = variables["winner"]
    assert votes[winner] == max(votes.values())
    assert texts[0].endswith(f"free?\nAnswer ({votes[winner]} of 5 votes): {winner}\n")
    for voter, text in enumerate(texts[1:], 1):
        assert text.endswith(f"Number of free seats: {variables[f'vote{voter}']}")


def test_calculator(run_example: Any) -> None:
    [text], _ = run_example("calculator.py")
    found = re.findall(r"<<(\d+)([-+*/])(\d+)>> (\S+)\n", text)
    assert len(found) == 5
    for left, operator, right, value in found:
        a, b = int(left), int(right)
        expected = {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[operator]
        assert float(value) == pytest.approx(expected, rel=1e-5)


def test_glossary(run_example: Any) -> None:
    [text], _ = run_example("glossary.js")
    english = re.findall(r"^English: (.*)$", text, re.MULTILINE)[1:]
    german = re.findall(r"^German: (.*)$", text, re.MULTILINE)[1:]
    assert len(english) == len(german) == 3
    for source, translation in zip(english, german, strict=True):
        for term, required in {"controller": "Controller", "token": "Token"}.items():
            assert (term in source) <= (required in translation.split(" "))


def test_c_function(run_example: Any, tmp_path: Path) -> None:
    [text], _ = run_example("c_function.js")
    (tmp_path / "larger.c").write_text(text)
    command = [sys.executable, "-P", "-m", "ziglang", "cc", "-c", "-Wall", "-Werror", "larger.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_form(run_example: Any) -> None:
    [text], variables = run_example("form.py")
    assert re.fullmatch(r"[A-Z][a-z]+ [A-Z][a-z]+", variables["name"])
    assert variables["quote"].rstrip(".") in text.partition("\n")[0]
    assert re.fullmatch(r"\d{1,2} [A-Z][a-z]+", variables["date"])
    assert variables["kind"] in {"complaint", "order", "question"}
    assert variables["pieces"] in "123456789"
    for name in ("name", "quote", "date", "kind", "pieces"):
        assert f"{name.capitalize()}: {variables[name]}" in text


def test_support_chat(run_example: Any) -> None:
    [_], variables = run_example("support_chat.js")
    assert variables["states"].split() == ["greet", "ask", "fix", "close"]


def test_twenty_questions(run_example: Any) -> None:
    [text], variables = run_example("twenty_questions.py")
    asked = re.findall(r"^Question \d: Is it (.*)\? (Yes|No)\.$", text, re.MULTILINE)
    assert len(asked) == len({what for what, _ in asked}) == 4
    facts = {"an animal": "Yes", "a pet": "Yes", "fast": "Yes"}
    assert all(answer == facts.get(what, "No") for what, answer in asked)
    assert text.endswith(f"My guess: {variables['guess']}. {'Right' if variables['guess'] == 'a dog' else 'Wrong'}!\n")


def test_haiku(run_example: Any) -> None:
    [text], _ = run_example("haiku.json")
    assert re.fullmatch(r"[^\n]+\n[A-Z][a-z ]*,?\n[a-z][a-z ]*,?\n[a-z][a-z ]*\.?", text)


def test_both_sides(run_example: Any) -> None:
    texts, variables = run_example("both_sides.json")
    assert len(texts) == 2
    expected = f"On the one hand: {variables['for']}\nOn the other hand: {variables['against']}\nAll in all: "
    assert re.fullmatch(rf"Should schools teach cooking\?\n{re.escape(expected)}(yes|no)", texts[0])
    assert texts[1].endswith(f"Against: {variables['against']}")


def test_each_example_is_tested() -> None:
    names = {path.stem for path in EXAMPLES.iterdir() if path.name not in ("README.md", "python")}
    assert len(names) >= 12
    assert {f"test_{name}" for name in names} <= set(globals())
