"""The parts that all commands share: help, version, errors, exit codes."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aici_cli.app import COMMANDS
from aici_controllers.catalog import SHIPPED, guest_names
from aici_runtime.guests.native import library as guest_loop
from tests.support.cli import AICI, aici

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "wasmtime", "fastapi", "numpy", "tokenizers", "httpx2", "httpcore2"}


def test_help_names_the_commands_and_loads_nothing_heavy() -> None:
    probe = "import sys; from aici_cli.main import _run; sys.argv = ['aici', '--help']; _run(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    *help_lines, modules = done.stdout.splitlines()
    assert {"run", "rt", "models", "doctor"} <= {line.split()[0] for line in help_lines if line.strip()}
    assert not HEAVY & {name.partition(".")[0] for name in modules.split()}
    assert not {each.place.partition(":")[0] for each in COMMANDS.values()} & set(modules.split())


def test_a_command_is_made_without_anything_heavy_and_the_help_of_all_has_its_summary() -> None:
    probe = (
        "import sys; from aici_cli.app import command_tree; print([c.help for c in command_tree().commands.values()])"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{probe}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    helps, modules = done.stdout.splitlines()
    summaries = [" ".join(text.strip().split("\n\n")[0].split()) for text in ast.literal_eval(helps)]
    assert summaries == [each.summary for each in COMMANDS.values()]
    assert not HEAVY & {name.partition(".")[0] for name in modules.split()}


def test_version() -> None:
    assert aici("--version").stdout.startswith("aici ")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["rnu"], "Did you mean"),
        (["models", "list", "--jsn"], "--jsn"),
        (["models", "path", "no-such-model"], "no-such-model"),
        (["run", "--max-tokens", "many", "x"], "--max-tokens"),
    ],
)
def test_wrong_use_is_exit_2_with_one_error_and_no_traceback(args: list[str], said: str) -> None:
    done = aici(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["serve", "smollm2"], "aici serve --model MODEL"),
        (["run", "smollm2", "a prompt"], "aici run --model MODEL"),
        (["run", "two", "words"], "in quotes"),
        (["run", "--model"], "`aici models list`"),
        (["chat", "--model"], "`aici models list`"),
        (["doctor", "x"], "see `aici doctor --help`"),
    ],
)
def test_a_hint_names_the_option_of_the_model(args: list[str], hint: str) -> None:
    done = aici(*args)
    assert done.returncode == 2
    assert hint in done.stderr


def test_an_unknown_model_names_what_was_tried(tmp_path: Path) -> None:
    done = aici("models", "path", "here/nowhere", env={"AICI_CACHE_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
    assert "hub repository here/nowhere" in done.stderr


def test_errors_have_no_colour_in_a_pipe_and_have_it_when_forced() -> None:
    assert "\x1b" not in aici("rnu").stderr
    assert "\x1b" in aici("rnu", env={"FORCE_COLOR": "1"}).stderr
    assert "\x1b" not in aici("rnu", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stderr


def test_a_closed_pipe_ends_quietly() -> None:
    with subprocess.Popen([*AICI, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == -13


def test_doctor_finds_this_machine_fit() -> None:
    done = aici("doctor", "--json")
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0, findings
    # A shipped guest whose sources could not be downloaded is missing, and doctor names the guest.
    verdicts = [findings[name]["verdict"] for name in ("controllers", "scripted controllers")]
    assert ("absent" in verdicts) == (set(guest_names()) != set(SHIPPED))
    details = findings["controllers"]["detail"] + findings["scripted controllers"]["detail"]
    assert all(name in details for name in SHIPPED)
    assert "controllers, " in findings["store"]["detail"]
    assert findings["engine"]["verdict"] == "ok"
    assert (findings["loop of guests"]["verdict"] == "ok") == (guest_loop.load() is not None)


def test_doctor_says_that_the_cache_cannot_be_written_and_which_kernels_there_are() -> None:
    done = aici("doctor", env={"AICI_CACHE_DIR": "/dev/null/here", "AICI_NATIVE": "avx1024"})
    assert done.returncode == 1
    assert "broken  cache: /dev/null/here cannot be written" in done.stdout
    assert "AICI_CACHE_DIR" in done.stdout
    assert "broken  native kernels: AICI_NATIVE is 'avx1024'" in done.stdout
    assert "broken  loop of guests: AICI_NATIVE is 'avx1024'" in done.stdout


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    """Like after `pip install aici` alone: the test hides the engine's packages from the process."""
    hide = "import sys; sys.modules['numpy'] = None; sys.argv[0] = 'aici'; from aici_cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hide, "run", "x"], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: numpy is not installed")
    assert "aici[kernels]" in done.stderr


def test_ctrl_c_in_a_finalizer_is_not_lost() -> None:
    """Python drops an exception that is raised in a finalizer: before, Ctrl-C while modules were imported did
    nothing."""
    script = """
import os, signal, sys, time
import aici_cli.main as cli
class Unlucky:
    def __del__(self): os.kill(os.getpid(), signal.SIGINT)
def run():
    unlucky = Unlucky()
    del unlucky
    time.sleep(20)
    print("never")
cli._run = run
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == -2, done.stderr
    assert "never" not in done.stdout


def test_ctrl_c_before_anything_is_open_is_silent(tmp_path: Path) -> None:
    """SIGINT arrives while the first package is imported."""
    (tmp_path / "typer.py").write_text("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(20)")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = aici("--help", env={"PYTHONPATH": path})
    assert (done.returncode, done.stdout, done.stderr) == (-2, "", "")


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("models list > /dev/full", 1, "No space left on device"),
        ("--help > /dev/full", 1, "No space left on device"),
        ("doctor --json >&-", 1, "standard output is closed"),
        ("run <&-", 2, "the prompt is empty"),
        ("run < /dev/null", 2, "the prompt is empty"),
        ("run $'p\\xff'", 2, "the prompt is not UTF-8 at character 1"),
        ("run --controller /dev/zero x", 2, "larger than"),
        ("run --controller ./README.md x", 2, "not a WebAssembly module"),
        ("run --controller regex --controller-arg @/dev/zero x", 2, "larger than"),
        ("models", 2, "Usage: aici models"),
    ],
)
def test_odd_streams_and_files_are_no_bugs(command: str, code: int, said: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m aici_cli {command}"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_json_is_utf8_whatever_the_locale() -> None:
    probe = "from aici_cli.output import print_json; print_json({'text': 'ü'})"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}
    )
    assert json.loads(done.stdout) == {"text": "ü"}
