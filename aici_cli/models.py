"""`aici models`: fetch and list the models in the cache."""

from pathlib import Path
from typing import Annotated

import typer

from aici_cli.output import print_json, say
from aici_cli.tables import print_rows

app = typer.Typer(help="Fetch, list and find models.", no_args_is_help=True, rich_markup_mode=None)

Model = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL]", help="A name, folder, .gguf file or hub repository (default: the default model)."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def pull(model: Model = None, json: Json = False) -> None:
    """Fetch a model and convert the model for fast loading."""
    from aici_engine.store.resolve import resolve_model

    _print_path(resolve_model(model, say=say), json)


@app.command(name="list")
def list_(json: Json = False) -> None:
    """List the models in the cache."""
    from aici_engine.store.paths import size_bytes
    from aici_engine.store.resolve import list_models

    found = list_models()
    if json:
        print_json([{"name": path.name, "path": str(path), "size_bytes": size_bytes(path)} for path in found])
        return
    if not found:
        say("no models yet: `aici models pull` fetches the default model")
    print_rows((path.name, f"{size_bytes(path) / 1e6:.0f} MB", path) for path in found)


@app.command()
def path(model: Model = None, json: Json = False) -> None:
    """Print the folder of a model in the cache."""
    from aici_engine.store.resolve import resolve_model

    _print_path(resolve_model(model, fetch=False), json)


def _print_path(path: Path, json: bool) -> None:
    if json:
        print_json({"path": str(path)})
    else:
        print(path)
