"""Ask the guest for verdicts on inputs, many in a question."""

from collections.abc import Sequence
from typing import Any

from aici_controllers.catalog import grammar_path
from tests.support.tool_guest import ToolGuest


def verdicts(tool: ToolGuest, name: str, inputs: Sequence[str]) -> list[bool]:
    """Return, for every input, whether the shipped grammar `name` accepts the input."""
    answers: list[bool] = []
    for at in range(0, len(inputs), 200):
        question = {"grammar": grammar_path(name).read_text(encoding="utf-8"), "inputs": list(inputs[at : at + 200])}
        answer: Any = tool.ask({"accepts": question})
        assert "problem" not in answer, answer
        answers += [one["accepted"] for one in answer["answers"]]
    return answers
