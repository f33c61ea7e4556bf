"""`aici config`: the settings of options, and where each comes from."""

import json as json_module
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from aici_cli.output import print_json, say
from aici_cli.settings import OptionSettings, read_settings, setting_files, variable

app = typer.Typer(help="Show the settings of options.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def show(
    context: typer.Context,
    all_: Annotated[bool, typer.Option("--all", help="Show the defaults, too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the options that an environment variable or a file sets, with the origin of each value.

    A flag wins over the environment variable, the variable over the nearest aici.toml, and this file over
    $XDG_CONFIG_HOME/aici/config.toml.
    """
    root = context.find_root()
    settings = read_settings(root.command)
    found = list(_values(root, settings, ()))
    shown = [each for each in found if all_ or each["origin"] != "default"]
    if json:
        print_json(shown)
        return
    if not shown:
        files = ", ".join(map(str, setting_files())) or "there is no aici.toml, and no config.toml"
        say(f"no option has a setting ({files})")
    for each in shown:
        print(f"{each['command']} --{each['option']}  {json_module.dumps(each['value'])}  {each['origin']}")


def _values(context: Any, settings: OptionSettings, path: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Ask Typer for the value and the source of each option of a command, and of the commands below."""
    for each in context.command.params if path else ():
        if each.param_type_name != "option" or each.name == "help":
            continue
        value, source = each.consume_value(context, {})
        origin = {
            "ENVIRONMENT": each.envvar or variable(path, each.name),
            "DEFAULT_MAP": settings.origins.get((path, each.name)),
        }
        yield {
            "command": context.command_path,
            "option": each.opts[0].removeprefix("--"),
            "value": _shown(value),
            "origin": str(origin.get(source.name, "default")),
        }
    for name, child in getattr(context.command, "commands", {}).items():
        below = type(context)(child, info_name=name, parent=context)
        yield from _values(below, settings, (*path, name))


def _shown(value: object) -> object:
    """Return a value as JSON has it, without the key in a server's URL."""
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value]
    if isinstance(value, str) and "#key=" in value:
        return value.partition("#key=")[0] + "#key=..."
    return value if value is None or isinstance(value, bool | int | float) else str(value)
