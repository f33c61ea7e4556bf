"""The flags of sampling parameters: every flag has the name and the default of the table."""

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from aici_cli.sampling_flags import with_sampling_flags
from aici_engine.parameter import SAME
from aici_engine.sampling_params import PARAMETERS

FLAGS = {name: each.flag for name, each in PARAMETERS.items() if each.flag is not None}


def parse(*args: str) -> dict[str, Any]:
    seen: list[dict[str, Any]] = []

    def command(first: str = "x", sampling: Any = None, last: bool = False) -> None:
        seen.append({"first": first, "last": last, **sampling})

    app = typer.Typer()
    app.command()(with_sampling_flags(command))
    assert CliRunner().invoke(app, args).exit_code == 0
    return seen[0]


def test_each_flag_has_its_default() -> None:
    defaults = {
        name: PARAMETERS[name].default if flag.default is SAME else flag.default for name, flag in FLAGS.items()
    }
    assert parse() == {"first": "x", "last": False, **defaults}


@pytest.mark.parametrize("name", FLAGS)
def test_each_flag_is_read(name: str) -> None:
    flag = f"--{name.replace('_', '-')}"
    kind = PARAMETERS[name].kind
    if kind == "texts":
        assert parse(flag, "a", flag, "b")[name] == ("a", "b")
    elif kind == "flag":
        assert parse(flag)[name] is True
    else:
        assert parse(flag, "1", "--last")[name] == 1
