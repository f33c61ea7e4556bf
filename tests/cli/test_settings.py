"""Settings of options: flags over environment variables over `aici.toml` over the user's `config.toml`."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aici_base.errors import UsageError
from aici_cli.app import command_tree
from aici_cli.settings import OptionSettings, read_settings, variable
from tests.support.cli import aici


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder below a project's, as the working folder, with settings of the user's own in `tmp_path/user`."""
    for name in list(os.environ):
        if name.startswith("AICI_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    (tmp_path / "user" / "aici").mkdir(parents=True)
    (tmp_path / "project" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "below")
    return tmp_path


def write(project: Path, text: str = "", *, user: str = "") -> None:
    (project / "project" / "aici.toml").write_text(text)
    (project / "user" / "aici" / "config.toml").write_text(user)


def read() -> OptionSettings:
    return read_settings(command_tree())


def shown(*args: str, **env: str) -> dict[str, tuple[Any, str]]:
    done = aici("config", "show", "--json", *args, env=env)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return {f"{each['command']} --{each['option']}": (each["value"], each["origin"]) for each in told}


def test_the_project_wins_over_the_user_and_the_variable_over_both(project: Path) -> None:
    write(
        project,
        "[run]\nmax-tokens = 4\n[bench.constraint]\nbatch = 3",
        user="[run]\nmax_tokens = 5\nseed = 1\n[serve]\nport = 5000\nprefix-cache = false",
    )
    local, user = (str(project / name) for name in ("project/aici.toml", "user/aici/config.toml"))
    assert shown(AICI_SERVE_PORT="99") == {
        "aici run --max-tokens": (4, local),
        "aici run --seed": (1, user),
        "aici bench constraint --batch": ([3], local),
        "aici serve --port": ("99", "AICI_SERVE_PORT"),
        "aici serve --prefix-cache": (False, user),
    }
    every = shown("--all")
    assert every["aici serve --port"] == (5000, user)
    assert every["aici chat --temperature"] == (0.0, "default")


def test_a_command_runs_by_its_settings_and_the_flag_wins(project: Path) -> None:
    (project / "project" / "lines").write_text("red\n")
    write(project, '[run]\nserver = "http://127.0.0.1:1"\nchoices = "lines"\n')
    assert "127.0.0.1:1 cannot be reached" in aici("run", "x").stderr
    assert "exclude each other" in aici("run", "--regex", "a", "x").stderr
    assert "127.0.0.1:2 cannot be reached" in aici("run", "x", env={"AICI_API_BASE": "http://127.0.0.1:2"}).stderr
    done = aici("run", "--server", "http://127.0.0.1:3", "x", env={"AICI_API_BASE": "http://127.0.0.1:2"})
    assert "127.0.0.1:3 cannot be reached" in done.stderr


def test_a_key_outside_of_a_table_is_for_every_command_with_the_option(project: Path) -> None:
    write(project, 'model = "tiny"\n[serve]\nmodel = ["one", "two"]')
    values = read().values
    assert values["run"]["model"] == values["bench"]["constraint"]["model"] == "tiny"
    assert values["node"]["join"]["model"] == ["tiny"]
    assert values["serve"]["model"] == ["one", "two"]
    assert "doctor" not in values


def test_paths_are_from_the_folder_of_the_file(project: Path) -> None:
    write(project, '[serve]\napi-key-file = "keys.toml"\n[run]\nchoices = "/abs"\nsubstring = "-"')
    values = read().values
    assert values["serve"]["api_key_file"] == str(project / "project" / "keys.toml")
    assert values["run"] == {"choices": "/abs", "substring": "-"}


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("[run]\nmax-token = 1", "aici run has no option max-token", "max-tokens"),
        ("[rnu]\nseed = 1", "no command is called rnu", "run"),
        ("[bench.constrain]\nrounds = 1", "no command is called bench constrain", "constraint"),
        ("tempratur = 1", "no command has an option tempratur", "temperature"),
        ("debug = true", "no command has an option debug", ""),
        ("[run]\nhelp = true", "no option help", ""),
        ("[run]\nseed = [1]", "seed = [1] is no value", ""),
        ("[run]\nseed = 2026-01-01", "is no value", ""),
        ("[run", "aici.toml", "TOML"),
    ],
)
def test_what_no_option_takes_is_an_error(text: str, said: str, hint: str, project: Path) -> None:
    write(project, text)
    with pytest.raises(UsageError) as error:
        read()
    assert str(project / "project" / "aici.toml") in error.value.message
    assert said in error.value.message
    assert hint in error.value.hint_for("cli")


def test_a_variable_that_no_option_has_is_an_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICI_CACHE_DIR", "/anywhere")
    monkeypatch.setenv(variable(("run",), "top_p"), "0.5")
    read()
    monkeypatch.setenv("AICI_BENCH_MASKS_ROUND", "1")
    with pytest.raises(UsageError, match="AICI_BENCH_MASKS_ROUND") as error:
        read()
    assert "AICI_BENCH_MASKS_ROUNDS" in error.value.hint_for("cli")


def test_a_wrong_value_says_where_to_look(project: Path) -> None:
    write(project, '[run]\nmax-tokens = "many"')
    done = aici("run", "x")
    assert done.returncode == 2
    assert "--max-tokens" in done.stderr
    assert "`aici config show`" in done.stderr
    assert "`aici config show`" not in aici("run", "--max-tokens", "few", "x").stderr


def test_a_key_of_a_server_is_not_shown(project: Path) -> None:
    write(project, 'server = "http://h#key=secret"')
    done = aici("config", "show")
    assert "#key=..." in done.stdout
    assert "secret" not in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(project: Path) -> None:
    write(project, "[run]\nseed = 1")
    os.chown(project / "project" / "aici.toml", 12345, 12345)
    with pytest.raises(UsageError, match="another user"):
        read()
