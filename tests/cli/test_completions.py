"""The completions of bash, zsh and fish: as the tree of commands has them, and as the shells complete by them."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aici_cli.completions import SHELLS, command_tree
from aici_controllers.catalog import SHIPPED, grammar_names
from tests.support.terminal import at_terminal

SCRIPTS = Path(__file__).parents[2] / "completions"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_scripts_are_those_of_the_tree(shell: str) -> None:
    assert (SCRIPTS / f"aici.{shell}").read_text() == SHELLS[shell](command_tree()), "run `make generated`"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with files, and a cache with models and tags."""
    (tmp_path / "mine.lark").touch()
    (tmp_path / "cache" / "modules").mkdir(parents=True)
    for model in ("tiny-llama", "tiny-gpt"):
        (tmp_path / "cache" / "models" / model).mkdir(parents=True)
    tags = '{"yesno":{"tag":"yesno","module_id":"ab"},"yellow.v2":{"tag":"yellow.v2","module_id":"ab"}}'
    (tmp_path / "cache" / "modules" / "tags.json").write_text(tags)
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AICI_", "XDG_"))}
    return kept | {
        "AICI_CACHE_DIR": str(home / "cache"),
        "AICI_STORE_DIR": str(home / "cache" / "modules"),
        "HOME": str(home),
        "TERM": "xterm",
    }


def by_bash(line: str, home: Path) -> set[str]:
    words = line.replace("=", " = ").split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    script = f"source {SCRIPTS}/aici.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _aici"
    script += r'; printf "%s\n" "${COMPREPLY[@]}"'
    return offered(["bash", "-c", script], home)


def by_fish(line: str, home: Path) -> set[str]:
    told = offered(["fish", "--no-config", "-c", f"source {SCRIPTS}/aici.fish; complete -C '{line}'"], home)
    return {each.partition("\t")[0].rpartition("=")[2] for each in told}


def offered(command: list[str], home: Path) -> set[str]:
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=home, env=environment(home), timeout=60
    )
    assert done.stderr == ""
    return set(done.stdout.split("\n")) - {""}


@pytest.mark.parametrize("ask", [by_bash, by_fish])
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("aici mo", {"models"}),
        ("aici models p", {"pull", "path"}),
        ("aici run --reg", {"--regex"}),
        ("aici serve --no-pi", {"--no-pin"}),
        ("aici run --grammar-syntax ", {"y", "lark", "gbnf"}),
        ("aici run --dtype=int", {"int4", "int8"}),
        ("aici run --grammar m", {"mine.lark", *(name for name in grammar_names() if name.startswith("m"))}),
        ("aici run --model tiny", {"tiny-llama", "tiny-gpt"}),
        ("aici models path t", {"tiny-llama", "tiny-gpt"}),
        ("aici chat --controller y", {"yesno", "yellow.v2"}),
        ("aici chat --controller re", {name for name in SHIPPED if name.startswith("re")}),
        ("aici ctrl rm y", {"yesno", "yellow.v2"}),
        ("aici grammar check mi", {"mine.lark"}),
        ("aici lmtp --model tiny", set()),
    ],
)
def test_a_line_is_completed(ask: Callable[[str, Path], set[str]], line: str, wanted: set[str], home: Path) -> None:
    if not shutil.which(ask.__name__.removeprefix("by_")):
        pytest.skip("this shell is not installed")
    assert ask(line, home) == wanted


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
@pytest.mark.parametrize("way", ["sourced", "in fpath"])
def test_zsh_completes(way: str, home: Path) -> None:
    """At a terminal: nothing else makes zsh complete."""
    zsh = shutil.which("zsh")
    assert zsh
    with at_terminal([zsh, "-f", "-i"], environment(home) | {"PS1": "ready> "}, home) as terminal:
        terminal.until("ready> ")
        if way == "sourced":
            terminal.type(f"source {SCRIPTS}/aici.zsh; echo begin\n")
        else:
            shutil.copy(SCRIPTS / "aici.zsh", home / "_aici")
            terminal.type(f"fpath+=({home}); autoload -Uz compinit; compinit -u -D; echo begin\n")
        terminal.until("\nbegin")
        for line, whole in (
            ("aici models pa", "aici models path "),
            ("aici run --grammar-syntax la", "aici run --grammar-syntax lark "),
            ("aici run --dtype=int4", "aici run --dtype=int4 "),
            ("aici run --grammar my", None),
            ("aici run --grammar mi", "aici run --grammar mine.lark "),
            ("aici run --model tiny-l", "aici run --model tiny-llama "),
            ("aici chat --controller yes", "aici chat --controller yesno "),
            ("aici ctrl rm yel", "aici ctrl rm yellow.v2 "),
        ):
            terminal.type(f"{line}\t#end")
            # zsh draws the line as far as it changes: ask for the line itself.
            terminal.type("\x01print -r -- '[\x05]'\n")
            assert f"[{whole or line}#end]\r\n" in terminal.until("]\r\n"), line
        terminal.type("exit\n")
        assert terminal.wait() == 0
