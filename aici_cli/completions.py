"""Generate `completions/aici.{bash,zsh,fish}` from the tree of commands: `python -m aici_cli.completions`.

The scripts are static, so TAB starts no Python. Names that differ from machine to machine, of models and tags, are read
from the cache folder by the shell. A test compares the scripts with the tree.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aici_cli.value_kinds import TEXT, Values, values_of


@dataclass(frozen=True, slots=True)
class Node:
    """A command with its path (`aici models pull`), and the words that may follow, with help.

    `values`: what options take, by option; options without a value are not in there. `argument`: what the first
    argument may be.
    """

    path: tuple[str, ...]
    commands: Mapping[str, str]
    options: Mapping[str, str]
    values: Mapping[str, Values]
    argument: Values

    @property
    def key(self) -> str:
        return " ".join(self.path)


def command_tree() -> list[Node]:
    from aici_cli import app

    return list(_walk(app.command_tree(), ("aici",)))


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[Node]:
    children = {name: child for name, child in getattr(command, "commands", {}).items() if not child.hidden}
    options, values, argument = {}, {}, TEXT
    for parameter in reversed(command.params):
        taken = values_of(" ".join(path), parameter)
        if parameter.param_type_name == "argument":
            argument = taken or TEXT
            continue
        for flag in parameter.opts:
            if flag.startswith("--"):
                options[flag] = _first_line(parameter.help)
            if taken is not None:
                values[flag] = taken
        for flag in parameter.secondary_opts:
            options[flag] = f"The opposite of {parameter.opts[0]}."
    summaries = {name: _first_line(child.help) for name, child in children.items()}
    shown = dict(reversed(options.items())) | {"--help": "Show this message and exit."}
    yield Node(path, summaries, shown, values, argument)
    for name, child in children.items():
        yield from _walk(child, (*path, name))


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]


_FIND: Final = """\
_aici_models() {
    command ls "${AICI_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/aici}/models" 2>/dev/null
}
_aici_tags() {
    local folder="${AICI_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/aici}/modules"
    command grep -o '"tag":"[^"]*"' "${AICI_STORE_DIR:-$folder}/tags.json" 2>/dev/null | command cut -d '"' -f 4
}
"""
"""Functions for bash and zsh."""


def bash(tree: Sequence[Node]) -> str:
    paths = "\n".join(f'            "{node.key}") at="{node.key}" ;;' for node in tree[1:])
    words = "\n".join(
        f'        "{node.key}") words="\n            {_lines([*node.commands, *node.options])}" ;;' for node in tree
    )
    return f"""\
{_FIND}
_aici() {{
    local at=aici words="" i cur="${{COMP_WORDS[COMP_CWORD]}}" option="${{COMP_WORDS[COMP_CWORD-1]}}"
    if [[ $cur == = ]]; then  # bash takes --option=value for three words
        cur=""
    elif [[ $option == = ]]; then
        option="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${{COMP_WORDS[i]}}" in
{paths}
        esac
    done
    COMPREPLY=()
    case "$at $option" in
{_options(tree, _bash_values)}
    esac
    if [[ $cur != -* ]]; then
        case "$at" in
{_arguments(tree, _bash_values)}
        esac
    fi
    case "$at" in
{words}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o filenames -o bashdefault -o default -F _aici aici
"""


def _bash_values(values: Values) -> str:
    words = " ".join([*values.words, *["$(_aici_models)"] * values.models, *["$(_aici_tags)"] * values.tags])
    found = [f'COMPREPLY=($(compgen -W "{words}" -- "$cur"))'] * bool(words)
    return "; ".join([*found, *['COMPREPLY+=($(compgen -f -- "$cur"))'] * values.files, "return"])


def zsh(tree: Sequence[Node]) -> str:
    def described(node: Node) -> str:
        texts = {**node.commands, **node.options}
        return _lines([_quoted(word + ":" + text.replace(":", "\\:")) for word, text in texts.items()])

    paths = "\n".join(f'            ("{node.key}") at="{node.key}" ;;' for node in tree[1:])
    words = "\n".join(f'        ("{node.key}") next=(\n            {described(node)}) ;;' for node in tree)
    return f"""\
#compdef aici

{_FIND}
_aici() {{
    local at=aici i option=${{words[CURRENT-1]}}
    local -a next
    if compset -P '--*='; then
        option=${{${{words[CURRENT]}}%%=*}}
    fi
    for ((i = 2; i < CURRENT; i++)); do
        case "$at ${{words[i]}}" in
{paths}
        esac
    done
    case "$at $option" in
{_options(tree, _zsh_values)}
    esac
    if [[ $PREFIX != -* ]]; then
        case "$at" in
{_arguments(tree, _zsh_values)}
        esac
    fi
    case "$at" in
{words}
    esac
    _describe aici next || _files
}}

# Called by the completion system as a file of $fpath, or sourced.
if [[ ${{funcstack[1]}} == _aici ]]; then
    _aici "$@"
else
    (( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
    compdef _aici aici
fi
"""


def _zsh_values(values: Values) -> str:
    words = [*values.words, *['${(f)"$(_aici_models)"}'] * values.models, *['${(f)"$(_aici_tags)"}'] * values.tags]
    found = [f"compadd -- {' '.join(words)}"] * bool(words) + ["_files"] * values.files
    return "; ".join([*found, "return"])


def _options(tree: Sequence[Node], shown: Callable[[Values], str]) -> str:
    """Return the branches of `case "$at $option"`."""
    takers = defaultdict(list)
    for node in tree:
        for option, values in node.values.items():
            takers[values].append(f"{node.key} {option}")
    return _cases(takers, shown)


def _arguments(tree: Sequence[Node], shown: Callable[[Values], str]) -> str:
    """Return the branches of `case "$at"` for commands with an argument."""
    takers = defaultdict(list)
    for node in tree:
        if node.argument != TEXT:
            takers[node.argument].append(node.key)
    return _cases(takers, shown)


def _cases(takers: Mapping[Values, Sequence[str]], shown: Callable[[Values], str]) -> str:
    lines = [
        f"            ({' | '.join(_quoted(key) for key in sorted(keys))}) {shown(values)} ;;"
        for values, keys in takers.items()
    ]
    return "\n".join(sorted(lines))


_FISH_FIND: Final = """\
function __aici_cache
    if set -q AICI_CACHE_DIR
        echo $AICI_CACHE_DIR
    else if set -q XDG_CACHE_HOME
        echo $XDG_CACHE_HOME/aici
    else
        echo $HOME/.cache/aici
    end
end
function __aici_models
    command ls (__aici_cache)/models 2>/dev/null
end
function __aici_tags
    set -l folder (__aici_cache)/modules
    set -q AICI_STORE_DIR; and set folder $AICI_STORE_DIR
    command grep -o '"tag":"[^"]*"' $folder/tags.json 2>/dev/null | command cut -d '"' -f 4
end
"""


def fish(tree: Sequence[Node]) -> str:
    lines = []
    for node in tree:
        seen = [f"__fish_seen_subcommand_from {name}" for name in node.path[1:]]
        unseen = [f"not __fish_seen_subcommand_from {' '.join(node.commands)}"] if node.commands else []
        condition = _quoted("; and ".join(seen + unseen)) if seen + unseen else ""
        start = f"complete -c aici -n {condition}" if condition else "complete -c aici"
        lines += [f"{start} -f -a {name} -d {_quoted(text)}" for name, text in node.commands.items()]
        if node.argument != TEXT:
            lines.append(f"{start}{_fish_values(node.argument)}")
        for flag, text in node.options.items():
            values = node.values.get(flag)
            taken = "" if values is None else " -r" + _fish_values(values)
            lines.append(f"{start} -l {flag[2:]}{taken} -d {_quoted(text)}")
    return _FISH_FIND + "\n".join(lines) + "\n"


def _fish_values(values: Values) -> str:
    words = [*values.words, *["(__aici_models)"] * values.models, *["(__aici_tags)"] * values.tags]
    return (" -F" if values.files else " -f") + (f" -a {_quoted(' '.join(words))}" if words else "")


def _lines(words: Sequence[str]) -> str:
    """One word a line, so that two changes of the commands seldom meet in one line."""
    return "\n            ".join(words)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"


SHELLS: dict[str, Callable[[Sequence[Node]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def main() -> None:
    folder = Path(__file__).parent.parent / "completions"
    for shell, script in SHELLS.items():
        (folder / f"aici.{shell}").write_text(script(command_tree()))


if __name__ == "__main__":
    main()
