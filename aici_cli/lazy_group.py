"""A group of commands whose modules are imported when a command is used: help, `--version` and errors need none."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command before its module is imported.

    `place`: module and name of a function or of a Typer, as "aici_cli.run:run". `summary`: the first paragraph of the
    command's help.
    """

    place: str
    summary: str


class LazyGroup(TyperGroup):
    """A root that imports a command at its first use. Help shows the summaries."""

    def put_off(self, table: Mapping[str, LazyCommand], prepare: Callable[[Any], None]) -> None:
        """Add commands. `prepare` is called with each command, and with the commands below, when the command is made,
        and with those that stand for commands in help."""
        made: Any = _MadeCommands(table, prepare)
        self.commands = made
        self._summaries = {name: _summary(name, each, prepare) for name, each in table.items()}
        self._is_help = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # of the base class
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._summaries.get(cmd_name) if self._is_help else super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._is_help = True
        super().format_help(ctx, formatter)
        self._is_help = False


class _MadeCommands(Mapping[str, Any]):
    """The commands by name. Iteration over names imports nothing."""

    def __init__(self, table: Mapping[str, LazyCommand], prepare: Callable[[Any], None]) -> None:
        self._table = table
        self._prepare = prepare
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = command = _make(name, self._table[name].place)
            _for_all(command, self._prepare)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def _make(name: str, place: str) -> Any:
    """Import a command, and make it as a root of Typer makes the commands below."""
    module_name, _, attribute = place.partition(":")
    module = import_module(module_name)
    found = getattr(module, attribute)
    root = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        root.add_typer(found, name=name)
    else:
        root.command(name=name, **getattr(module, "SETTINGS", {}))(found)
    return get_group(root).commands[name]


def _summary(name: str, command: LazyCommand, prepare: Callable[[Any], None]) -> TyperCommand:
    stand_in = TyperCommand(name, help=command.summary)
    prepare(stand_in)
    return stand_in


def _for_all(command: Any, prepare: Callable[[Any], None]) -> None:
    prepare(command)
    for child in getattr(command, "commands", {}).values():
        _for_all(child, prepare)
