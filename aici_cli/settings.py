"""Settings of options in files: `aici.toml` of the project, and `config.toml` of the user.

The nearest `aici.toml` in the working folder or above wins over `$XDG_CONFIG_HOME/aici/config.toml`. A table is a
command and its keys are options; a key outside of a table is for every command with the option:

    model = "smollm2-135m-instruct"

    [run]
    max-tokens = 100

    [bench.constraint]
    rounds = 3

Typer applies the values, below flags and environment variables (`AICI_RUN_MAX_TOKENS`).
"""

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from aici_base.errors import UsageError
from aici_cli.files import read_text

PREFIX: Final = "AICI"
"""The beginning of the names of environment variables."""
PROJECT_FILE: Final = "aici.toml"
_MAX_BYTES: Final = 1 << 20

_Nodes: TypeAlias = Mapping[tuple[str, ...], Mapping[str, Any]]
"""The options of each command, by path and name."""


@dataclass(frozen=True, slots=True)
class OptionSettings:
    """`values`: nested by command, as Typer's `default_map`. `origins`: the file of each value, by command and
    option."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[tuple[tuple[str, ...], str], Path] = field(default_factory=dict)


def read_settings(command: Any) -> OptionSettings:
    """Read the files for a tree of Typer's commands.

    Raise UsageError for a key that no command has, and for such an environment variable of a command.
    """
    settings, files = OptionSettings(), setting_files()
    starts = tuple(variable((name,), "") for name in command.commands)
    variables = [name for name in os.environ if name.startswith(starts)]
    if not (files or variables):
        return settings  # without a look at the commands, which would import all of them
    nodes = dict(_walk(command, ()))
    _check_variables(variables, nodes)
    for file in files:
        _add(settings, file, _tables(file), nodes)
    return settings


def variable(path: tuple[str, ...], name: str) -> str:
    """Return the environment variable of an option.

    >>> variable(("ctrl", "init-js"), "force")
    'AICI_CTRL_INIT_JS_FORCE'
    """
    return "_".join([PREFIX, *path, name]).upper().replace("-", "_")


def _check_variables(given: Sequence[str], nodes: _Nodes) -> None:
    known = {variable(path, name) for path, options in nodes.items() for name in options}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UsageError(
                f"no option has the environment variable {name}",
                hint=f"did you mean {near[0]}?" if near else "`aici config show --all` lists the options",
            )


def setting_files() -> list[Path]:
    """Return the files that exist, the weaker first."""
    user = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "aici" / "config.toml"
    here = Path.cwd()
    project = (folder / PROJECT_FILE for folder in (here, *here.parents))
    nearest = next((file for file in project if file.is_file()), None)
    return [file for file in (user, nearest) if file is not None and file.is_file()]


def _tables(file: Path) -> dict[str, Any]:
    import tomllib

    if file.stat().st_uid not in (0, os.geteuid()):
        raise UsageError(f"{file} belongs to another user", hint="settings decide where prompts go: own the file")
    try:
        return tomllib.loads(read_text(file, "the settings", _MAX_BYTES))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: {error}", hint="the file is in TOML") from error


def _add(settings: OptionSettings, file: Path, tables: Mapping[str, Any], nodes: _Nodes) -> None:
    shared = {key: value for key, value in tables.items() if not isinstance(value, dict)}
    for key, value in shared.items():
        takers = [path for path, options in nodes.items() if path and _name(key) in options]
        if not takers:
            known = {name for path, options in nodes.items() if path for name in options}
            raise _unknown(file, key, "no command has an option", [each.replace("_", "-") for each in known])
        for path in takers:
            _set(settings, file, path, nodes[path], key, value)
    for key, value in tables.items():
        if isinstance(value, dict):
            _add_table(settings, file, (key,), value, nodes)


def _add_table(
    settings: OptionSettings, file: Path, path: tuple[str, ...], table: Mapping[str, Any], nodes: _Nodes
) -> None:
    if path not in nodes:
        known = [each[-1] for each in nodes if each and each[:-1] == path[:-1]]
        raise _unknown(file, " ".join(path), "no command is called", known)
    for key, value in table.items():
        if isinstance(value, dict):
            _add_table(settings, file, (*path, key), value, nodes)
        elif _name(key) in nodes[path]:
            _set(settings, file, path, nodes[path], key, value)
        else:
            known = [each.replace("_", "-") for each in nodes[path]]
            raise _unknown(file, key, f"aici {' '.join(path)} has no option", known)


def _set(
    settings: OptionSettings, file: Path, path: tuple[str, ...], options: Mapping[str, Any], key: str, value: object
) -> None:
    name = _name(key)
    option = options[name]
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float | bool) for item in items) or (
        items is value and not option.multiple
    ):
        raise UsageError(f"{file}: {key} = {value!r} is no value of an option", hint="see `aici --help`")
    from aici_cli.value_kinds import takes_path

    if takes_path(option):  # as the file says it, not as the working folder has it
        items = [each if each == "-" else str(file.parent / Path(str(each)).expanduser()) for each in items]
    table = settings.values
    for step in path:
        table = table.setdefault(step, {})
    table[name] = items if option.multiple else items[0]
    settings.origins[path, name] = file


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield each command's path with its options by name."""
    options = {each.name: each for each in command.params if each.param_type_name == "option" and each.name != "help"}
    yield path, options
    for name, child in getattr(command, "commands", {}).items():
        yield from _walk(child, (*path, name))


def _name(key: str) -> str:
    return key.replace("-", "_")


def _unknown(file: Path, key: str, what: str, known: list[str]) -> UsageError:
    near = difflib.get_close_matches(key.split()[-1], known, n=1)
    return UsageError(f"{file}: {what} {key}", hint=f"did you mean {near[0]}?" if near else "see `aici --help`")
