"""The command line, from the tree of Typer's commands."""

from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args

from docs.generators.markdown import NOTE, one_line, table


def cli_page() -> str:
    from aici_cli.app import command_tree

    intro = "`aici --help` and `aici COMMAND --help` print the same. `--debug` stands before the command.\n"
    return "".join(
        [NOTE.format(source="the tree of commands"), "# Command line\n\n", intro, *_walk(command_tree(), "aici")]
    )


def _walk(command: Any, path: str) -> Iterator[str]:
    children = {name: child for name, child in getattr(command, "commands", {}).items() if not child.hidden}
    usage = " ".join([path, *(_argument(each) for each in command.params if each.param_type_name == "argument")])
    yield f"\n## {path}\n\n{(command.help or '').strip()}\n"
    if children:
        yield table(
            ("command", "meaning"),
            ([f"`{path} {name}`", one_line(_first_paragraph(child.help))] for name, child in children.items()),
        )
    elif usage != path:
        yield f"\nUsage: `{usage} [OPTIONS]`\n"
    shown = [each for each in command.params if not each.hidden and each.name != "help"]
    yield table(("option", "meaning", "default"), map(_row, shown))
    for name, child in children.items():
        yield from _walk(child, f"{path} {name}")


def _first_paragraph(text: str | None) -> str:
    return (text or "").strip().split("\n\n")[0]


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _row(parameter: Any) -> list[str]:
    if parameter.param_type_name == "argument":
        names = f"`{_argument(parameter)}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    default = parameter.default
    is_default = default is None or isinstance(default, bool) or callable(default) or str(default) in ("", "()", "[]")
    shown = "" if is_default else f"`{default}`"
    note = f" Environment: `{parameter.envvar}`." if getattr(parameter, "envvar", None) else ""
    return [names, one_line(parameter.help) + _values(parameter) + note, shown]


def _values(parameter: Any) -> str:
    """Return the values of a choice, unless the help has them."""
    kind = parameter.type_descriptor.annotation
    members = kind if isinstance(kind, type) and issubclass(kind, Enum) else get_args(kind)
    values = [str(getattr(value, "value", value)) for value in members if isinstance(value, str)]
    is_told = all(value.lower() in (parameter.help or "").lower() for value in values)
    return "" if is_told else f" Values: {', '.join(f'`{value}`' for value in values)}."
