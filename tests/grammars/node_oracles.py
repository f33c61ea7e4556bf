"""Parsers from npm, run by node, for the grammars of languages that have no strict parser in Python; see oracles.py.

Without node or without npm's registry, no text is judged.
"""

import atexit
import json
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

Verdict = bool | None

_PACKAGES: Final = {
    "javascript": ["acorn@8.19.0"],
    "typescript": ["typescript@5.9.3"],  # 7 has no parser in JavaScript
    "latex_math": ["katex@0.19.1"],
    "mermaid": ["mermaid@12.3.0", "jsdom@29.1.1"],
}


def can_judge(language: str) -> bool:
    """Return whether the parser of `language` can be run. The first call installs its package in a folder for tests."""
    return _folder(language) is not None


def need_oracle(name: str) -> None:
    """Skip the test if the other parser of the grammar `name` is one of node's and cannot be run."""
    if name in _PACKAGES and not can_judge(name):
        pytest.skip(f"node, or npm's {' and '.join(_PACKAGES[name])}, is not here")


@cache
def _folder(language: str) -> Path | None:
    if not shutil.which("npm"):
        return None
    packages = _PACKAGES[language]
    folder = Path(tempfile.gettempdir()) / f"aici-test-{'-'.join(packages)}-{os.getuid()}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            (Path(scratch) / "files").mkdir()
            (Path(scratch) / "files" / "package.json").write_text("{}")
            command = ["npm", "install", "--silent", "--ignore-scripts", f"--prefix={scratch}/files", *packages]
            if subprocess.run(command, capture_output=True, timeout=200).returncode:
                return None
            try:
                (Path(scratch) / "files").rename(folder)
            except OSError:
                if not folder.exists():  # else another process was faster
                    raise
    return folder


@cache
def _process(language: str) -> "subprocess.Popen[str]":
    command = ["node", str(Path(__file__).with_name("node_parsers.mjs")), str(_folder(language))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, encoding="utf-8", **pipes)  # type: ignore[call-overload]
    atexit.register(_end, process)
    return process  # type: ignore[no-any-return]


def _end(process: "subprocess.Popen[str]") -> None:
    assert process.stdin
    process.stdin.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()


def parse_error(language: str, text: str) -> str | None:
    """Return the message of the language's parser, or None for a text that the parser accepts."""
    process = _process(language)
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps({"language": language, "text": text}) + "\n")
    process.stdin.flush()
    answer: str | None = json.loads(process.stdout.readline())
    return answer


def _verdict(language: str, text: str, meaning: str) -> Verdict:
    if not can_judge(language):
        return None
    error = parse_error(language, text)
    return None if error and re.search(meaning, error) else error is None


# Found by scopes and contexts, not by a grammar; and the places where a line break matters.
_JAVASCRIPT_MEANING: Final = (
    "already been declared|is not defined|outside|Unsyntactic|Invalid regular expression|name clash|super|Duplicate"
    "|'use strict'|can't have|use the await|'await'|not be in|can only"
)
_JAVASCRIPT_LINES: Final = re.compile(r"\b(return|throw|async)\s*(/[/*].*)?\n|\n\s*(=>|\+\+|--)")


def javascript(text: str) -> Verdict:
    verdict = _verdict("javascript", text, _JAVASCRIPT_MEANING)
    return None if verdict is False and _JAVASCRIPT_LINES.search(text) else verdict


_TYPESCRIPT_QUIRKS: Final = re.compile(r"\bnew\s+import\b|\binfer\s+\w+\s*\?")
"""`new import.meta()` is JavaScript, and `?` may follow a type in a tuple; its parser refuses both in some places."""


def typescript(text: str) -> Verdict:
    verdict = _verdict("typescript", text, "\\0")
    is_unclear = _JAVASCRIPT_LINES.search(text) or _TYPESCRIPT_QUIRKS.search(text)
    return None if verdict is False and is_unclear else verdict


def latex_math(text: str) -> Verdict:
    return _verdict("latex_math", text, "\\0")


_MERMAID_MEANING: Final = (
    "inactivate an inactive|actors with the same id|associated (creating|destroying)|same participant"
)


def mermaid(text: str) -> Verdict:
    return _verdict("mermaid", text, _MERMAID_MEANING)
