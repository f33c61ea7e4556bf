"""Compare verdicts on texts found in the wild, of the grammars that ship a part of a language.

    python -m tests.grammars.wild FOLDER [--only NAME ...] [--show 10] [--limit 2000]

FOLDER is searched for files: a site-packages, a node_modules, unpacked archives. `both`: texts that the grammar and the
other parser accept. `left out`: only the other parser accepts the text. `neither`: both refuse it. `wrong`: only the
grammar accepts it, which must not happen.
"""

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from aici_controllers.catalog import guest_path
from tests.grammars.oracles import ORACLES
from tests.grammars.verdicts import verdicts
from tests.support.tool_guest import ToolGuest

_MAX_BYTES = 100_000


def _files(folder: Path, *endings: str) -> Iterator[str]:
    for path in sorted(path for ending in endings for path in folder.rglob(f"*{ending}")):
        if path.is_file() and path.stat().st_size <= _MAX_BYTES:
            try:
                yield path.read_text(encoding="utf-8")
            except ValueError:
                continue


def regexes(folder: Path) -> Iterator[str]:
    """Yield the literal patterns of calls of `re`, except those with flags: VERBOSE is another syntax."""
    for text in _files(folder, ".py"):
        if "re." not in text:
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("re"), attr=name), args=[ast.Constant(value=str(pattern)), *_]
                ) if name != "escape" and "VERBOSE" not in ast.dump(node) and "attr='X'" not in ast.dump(node):
                    yield pattern.encode(errors="replace").decode()


def markdown_tables(folder: Path) -> Iterator[str]:
    for text in _files(folder, ".md", ".rst", ".py", "METADATA"):
        yield from (table[0] for table in re.finditer(r"(?m)(?:^\|.*\|[ \t]*\n){2,}", text) if "-" in table[0])


def scripts(folder: Path) -> Iterator[str]:
    """Yield whole modules: a statement must end with a semicolon in many of them."""
    return (text for text in _files(folder, ".js", ".mjs") if not text.startswith("#!"))


def declarations(folder: Path) -> Iterator[str]:
    return _files(folder, ".ts", ".mts")


def formulas(folder: Path) -> Iterator[str]:
    """Yield displayed formulas of Markdown and of docstrings."""
    for text in _files(folder, ".md", ".rst", ".py"):
        for found in re.finditer(r"\$\$([^$]{1,500})\$\$|:math:`([^`]{1,500})`", text):
            yield (found[1] or found[2]).replace("\\\\", "\\") if '"""' in text else found[1] or found[2]


_DIAGRAMS: Final = re.compile(
    r"(?ms)^```\s*mermaid[ \t]*\n(.*?)^```|`\s*((?:flowchart|graph|sequenceDiagram)\b[^`$\\]*)`"
)


def diagrams(folder: Path) -> Iterator[str]:
    """Yield flowcharts and sequence diagrams: fenced blocks of Markdown, and the template strings of tests."""
    for text in _files(folder, ".md", ".mdx", ".ts", ".js", ".mjs", ".mmd"):
        for found in re.finditer(
            r"(?ms)^```\s*mermaid[ \t]*\n(.*?)^```|`\s*((?:flowchart|graph|sequenceD)[^`$\\]*)`", text
        ):
            diagram = found[1] or found[2]
            if re.match(r"\s*(flowchart|graph|sequenceDiagram)\b", diagram):
                yield diagram


def blocks(language: str, *endings: str) -> Callable[[Path], Iterator[str]]:
    """Return a function that yields the fenced blocks of `language` in Markdown, and the files with the endings."""

    def texts(folder: Path) -> Iterator[str]:
        fence = re.compile(rf"(?ms)^```\s*{language}[ \t]*\n(.*?)^```")
        for text in _files(folder, ".md", ".mdx", ".rst", "METADATA"):
            yield from (block[1] for block in fence.finditer(text))
        if endings:
            yield from _files(folder, *endings)

    return texts


TEXTS: Final[dict[str, Callable[[Path], Iterator[str]]]] = {
    "html": lambda folder: _files(folder, ".html", ".htm"),
    "javascript": scripts,
    "latex_math": formulas,
    "markdown_table": markdown_tables,
    "mermaid": diagrams,
    "regex": regexes,
    "typescript": declarations,
    "yaml": blocks("ya?ml", ".yml", ".yaml"),
}


def compare(tool: ToolGuest, name: str, texts: list[str], show: int) -> bool:
    counts = dict.fromkeys(("both", "left out", "neither", "no verdict", "wrong"), 0)
    examples: list[tuple[str, str]] = []
    for text, ours in zip(texts, verdicts(tool, name, texts), strict=True):
        opinion = ORACLES[name](text)
        kind = {
            (True, True): "both",
            (True, False): "left out",
            (False, False): "neither",
            (False, True): "wrong",
        }.get((opinion, ours), "no verdict")  # type: ignore[arg-type]
        counts[kind] += 1
        if kind in ("left out", "wrong"):
            examples.append((kind, text))
    print(f"{name}: {len(texts)} texts, " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    shown = sorted(examples, key=lambda example: (example[0] != "wrong", len(example[1])))
    for kind, text in shown[:show]:
        print(f"  {kind}: {text[:200]!r}")
    return not counts["wrong"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="+", choices=sorted(TEXTS), default=sorted(TEXTS))
    parser.add_argument("--show", type=int, default=10, help="examples a grammar")
    parser.add_argument("--limit", type=int, default=2000, help="texts a grammar, drawn at random")
    args = parser.parse_args()
    tool, good = ToolGuest(guest_path("grammar")), True
    for name in args.only:
        texts = sorted({text for folder in args.folders for text in TEXTS[name](folder)})
        if len(texts) > args.limit:
            texts = Random(1).sample(texts, args.limit)
        good = compare(tool, name, texts, args.show) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
