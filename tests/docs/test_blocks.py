"""Every code block of the documentation works as printed, or says why the block is not run.

The blocks of a page are run from the top, in a separate folder for the page. A block with a title is written to the
file of this name; `console` blocks run their commands and compare the output (`…` stands for anything); `python`
blocks run; other languages are checked (`make docs` draws the pictures). A server with the default model answers for
all pages: `aici run` asks the server (`AICI_API_BASE`), and `aici serve` without options names the server.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Block, Page, commands
from tests.support.server import Server, serving

pytestmark = pytest.mark.e2e

_ADDRESS = "http://127.0.0.1:4242"
_CHECKED = {
    "json",
    "toml",
    "mermaid",
    "text",
    "ini",
    "dockerfile",
    "js",
    "cpp",
    "rust",
    "diff",
    "yacc",
    "lark",
    "gbnf",
    "",
}
_PAGES = [page for page in map(Page, PAGES) if page.blocks]

NOT_RUN = 13
"""Blocks that may say `not run`. Raise the number only for a block whose printed reason convinces a reader."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def test_few_blocks_are_not_run() -> None:
    unrun = [f"{block}: {block.not_run}" for page in _PAGES for block in page.blocks if block.not_run]
    assert len(unrun) <= NOT_RUN, "\n".join(unrun)
    assert all(len(line.split()) > 3 for line in unrun), "each says why"


def test_each_language_is_known() -> None:
    languages = Counter(block.language for page in _PAGES for block in page.blocks)
    assert set(languages) <= _CHECKED | {"console", "python"}, languages


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.path.relative_to(ROOT)))
def test_page(page: Page, tmp_path: Path, server: Server) -> None:
    with ExitStack() as stack:
        reader = Reader(tmp_path, server, stack)
        for block in page.blocks:
            if not block.not_run:
                reader.read(block)


class Reader:
    """Follows a page, block by block."""

    def __init__(self, folder: Path, server: Server, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._shared = self._server = server
        self._printed = ""
        (folder / "examples").symlink_to(ROOT / "examples")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._env = os.environ | {"PATH": path, "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}  # in the order of a terminal

    def read(self, block: Block) -> None:
        if block.title:
            self._write(block)
        match block.language:
            case "console":
                self._console(block)
            case "python" if not block.title:
                self._python(block)
            case "text" if block.mark and block.mark[0] == "output":
                compare(self._printed, block.text, str(block))
            case "json":
                json.loads(block.text)
            case "toml":
                tomllib.loads(block.text)
            case "rust" if block.title and (cargo := _cargo()):
                crate = (self._folder / block.title).parents[1]
                target = f"--target-dir={self._folder / 'target'}"
                self._run([cargo, "check", "--offline", target, f"--manifest-path={crate / 'Cargo.toml'}"], str(block))
            case "js" if node := shutil.which("node"):
                self._run([node, "--check", "--input-type=module"], str(block), stdin=block.text)
            case _:
                pass

    def _write(self, block: Block) -> None:
        assert block.title is not None
        file = self._folder / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text)

    def _console(self, block: Block) -> None:
        for command, output in commands(block.text):
            if command.startswith("aici serve"):
                self._serve(command)
                continue
            status = int(block.mark[1]) if block.mark and block.mark[0] == "exit" else 0
            shown = self._run(
                ["bash", "-c", command.replace(_ADDRESS, self._server.url)], f"{block}: {command}", status
            )
            compare(shown, output, f"{block}: {command}")

    def _serve(self, command: str) -> None:
        options = command.removesuffix("&").split()[2:]
        if "--port" in options:
            del options[options.index("--port") : options.index("--port") + 2]
        if options:
            with chdir(self._folder):
                self._server = self._stack.enter_context(serving(*options))

    def _python(self, block: Block) -> None:
        self._printed = self._run(
            [sys.executable, "-"], str(block), stdin=block.text.replace(_ADDRESS, self._server.url)
        )

    def _run(self, command: list[str], what: str, status: int = 0, stdin: str = "") -> str:
        """Run `command` and return stdout and stderr, interleaved."""
        env = self._env | {"AICI_API_BASE": self._shared.url}
        done = subprocess.run(
            command,
            cwd=self._folder,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            env=env,
        )
        assert done.returncode in (status, -signal.SIGPIPE if status else status), (
            f"{what}: {done.returncode}\n{done.stdout}"
        )
        return done.stdout


@cache
def _cargo() -> str | None:
    """Return the path of cargo, or None without a toolchain: rustup's `cargo` may have none to call."""
    cargo = shutil.which("cargo")
    return cargo if cargo and subprocess.run([cargo, "--version"], capture_output=True).returncode == 0 else None


def compare(printed: str, shown: str, what: str) -> None:
    """Raise unless `printed` is the output that the page shows; a page without output accepts any output."""
    lines = [
        r"(?:[^\n]*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
        for line in shown.strip().splitlines()
    ]
    matches = re.fullmatch("".join(lines), f"{printed.strip()}\n", re.DOTALL)
    assert not shown or matches, f"{what}\n--- printed\n{printed}\n--- shown\n{shown}"
