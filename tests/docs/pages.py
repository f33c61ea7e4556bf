"""The pages of `docs/` and the READMEs, and the code blocks of the pages, for the tests of `tests/docs`."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md")) + [
    ROOT / name for name in ("README.md", "ARCHITECTURE.md", "SECURITY.md")
]
MARKDOWN = sorted(
    {
        *PAGES,
        *ROOT.glob("*.md"),
        *(
            path
            for room in ("controllers", "engine", "runtime", "grammars", "examples")
            for path in (ROOT / room).rglob("*.md")
        ),
    }
)

_FENCE = re.compile(r"^( *)```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^\1``` *$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (not run|exit|output): (.*) -->\s*\Z")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `title` is the name of the file; `mark` is the comment above the block: `not run: WHY`, `exit:
    STATUS`."""

    page: Path
    line: int
    language: str
    title: str | None
    text: str
    mark: tuple[str, str] | None

    @property
    def not_run(self) -> str | None:
        return self.mark[1] if self.mark and self.mark[0] == "not run" else None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Page:
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def blocks(self) -> list[Block]:
        found = []
        for fence in _FENCE.finditer(self.text):
            indent, language, title, text = fence.groups()
            mark = _MARK.search(self.text[: fence.start()])
            lines = [line.removeprefix(indent) for line in text.splitlines(keepends=True)]
            line = self.text.count("\n", 0, fence.start()) + 1
            found.append(Block(self.path, line, language, title, "".join(lines), (mark[1], mark[2]) if mark else None))
        return found

    @property
    def prose(self) -> str:
        """The text without code blocks, code, links' targets and comments."""
        text = re.sub(r"<!--.*?-->", "", _FENCE.sub("", self.text), flags=re.DOTALL)
        return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "", text))


def commands(session: str) -> list[tuple[str, str]]:
    """Return the commands of a console block with the output shown after each command. `> ` and a backslash continue
    a command."""
    found: list[tuple[str, str]] = []
    for line in session.splitlines():
        command, output = found[-1] if found else ("", "")
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found and not output and (line.startswith("> ") or command.endswith("\\")):
            found[-1] = (f"{command}\n{line.removeprefix('> ')}", "")
        elif found:
            found[-1] = (command, f"{output}{line}\n")
    return found
