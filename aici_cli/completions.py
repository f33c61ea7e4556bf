"""Generate `completions/aici.{bash,zsh,fish}` from the tree of commands: `python -m aici_cli.completions`.

The scripts are static, so TAB starts no Python. A test compares the scripts with the tree.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.main import get_command


@dataclass(frozen=True, slots=True)
class Node:
    """A command with its path (`aici models pull`), and the words that may follow, with help."""

    path: tuple[str, ...]
    commands: dict[str, str]
    options: dict[str, str]

    @property
    def key(self) -> str:
        return " ".join(self.path)

    @property
    def words(self) -> dict[str, str]:
        return self.commands | self.options


def command_tree() -> list[Node]:
    from aici_cli.app import app

    return list(_walk(get_command(app), ("aici",)))


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[Node]:
    children = {name: child for name, child in getattr(command, "commands", {}).items() if not child.hidden}
    options = {
        flag: _first_line(parameter.help)
        for parameter in command.params
        for flag in parameter.opts
        if flag.startswith("--")
    }
    summaries = {name: _first_line(child.help) for name, child in children.items()}
    yield Node(path, summaries, options | {"--help": "Show this message and exit."})
    for name, child in children.items():
        yield from _walk(child, (*path, name))


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]


def bash(tree: list[Node]) -> str:
    cases = "\n".join(f'        "{node.key}") words="{" ".join(node.words)}" ;;' for node in tree)
    return f"""\
_aici() {{
    local at=aici words="" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${{COMP_WORDS[i]}}" in
            {_paths(tree)}) at+=" ${{COMP_WORDS[i]}}" ;;
        esac
    done
    case "$at" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _aici aici
"""


def zsh(tree: list[Node]) -> str:
    def described(node: Node) -> str:
        return " ".join(_quoted(word + ":" + text.replace(":", "\\:")) for word, text in node.words.items())

    cases = "\n".join(f'        ("{node.key}") next=({described(node)}) ;;' for node in tree)
    return f"""\
#compdef aici

_aici() {{
    local at=aici i
    local -a next
    for ((i = 2; i < CURRENT; i++)); do
        case "$at ${{words[i]}}" in
            ({_paths(tree)}) at+=" ${{words[i]}}" ;;
        esac
    done
    case "$at" in
{cases}
    esac
    _describe aici next || _files
}}

_aici "$@"
"""


def fish(tree: list[Node]) -> str:
    lines = []
    for node in tree:
        seen = [f"__fish_seen_subcommand_from {name}" for name in node.path[1:]]
        unseen = [f"not __fish_seen_subcommand_from {' '.join(node.commands)}"] if node.commands else []
        condition = _quoted("; and ".join(seen + unseen)) if seen + unseen else ""
        start = f"complete -c aici -n {condition}" if condition else "complete -c aici"
        lines += [f"{start} -f -a {name} -d {_quoted(text)}" for name, text in node.commands.items()]
        lines += [f"{start} -l {flag[2:]} -d {_quoted(text)}" for flag, text in node.options.items()]
    return "\n".join(lines) + "\n"


def _paths(tree: list[Node]) -> str:
    return " | ".join(f'"{node.key}"' for node in tree[1:])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"


SHELLS: dict[str, Callable[[list[Node]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def main() -> None:
    folder = Path(__file__).parent.parent / "completions"
    for shell, script in SHELLS.items():
        (folder / f"aici.{shell}").write_text(script(command_tree()))


if __name__ == "__main__":
    main()
