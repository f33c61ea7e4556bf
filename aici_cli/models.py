"""`aici models`: fetch, list and remove the models in the cache."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from aici_base.errors import UsageError
from aici_cli.output import print_json, say
from aici_cli.tables import print_rows

app = typer.Typer(help="Fetch, list, find and remove models.", no_args_is_help=True, rich_markup_mode=None)

Model = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL]", help="A name, folder, .gguf file or hub repository (default: the default model)."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def pull(model: Model = None, json: Json = False) -> None:
    """Fetch a model and convert the model for fast loading. An interrupted download goes on where it ended."""
    from aici_engine.store.resolve import resolve_model

    with _progress() as progress:
        path = resolve_model(model, say=say, progress=progress)
    _print_path(path, json)


@app.command(name="list")
def list_(
    available: Annotated[
        bool, typer.Option("--available", help="List the models with a short name, in the cache or not.")
    ] = False,
    json: Json = False,
) -> None:
    """List the models in the cache, or those that can be fetched by a short name."""
    from aici_engine.store.paths import size_bytes
    from aici_engine.store.resolve import list_models

    if available:
        _list_available(json)
        return
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


@app.command()
def rm(
    model: Annotated[str, typer.Argument(metavar="NAME", help="A name of `aici models list`.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Remove a model from the cache. A model in use is not removed."""
    from aici_engine.config import DTYPES
    from aici_engine.native import packed_cache
    from aici_engine.store.paths import size_bytes
    from aici_engine.store.remove import find_cached, remove_model

    folder = find_cached(model)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("nobody can be asked: stdin is no terminal", hint="use --yes to remove without a question")
        question = f"remove {folder} ({size_bytes(folder) / 1e6:.0f} MB)?"
        if not typer.confirm(question, err=True):
            raise typer.Exit(1)
    freed = remove_model(
        model, files_beside=lambda path: [file for dtype in DTYPES for file in packed_cache.files_of(path, dtype)]
    )
    if json:
        print_json({"name": model, "freed_bytes": freed})
    else:
        say(f"removed {model}: {freed / 1e6:.0f} MB")


def _list_available(json: bool) -> None:
    from dataclasses import asdict

    from aici_engine.store.catalogue import CATALOGUE
    from aici_engine.store.resolve import list_models

    here = {path.name for path in list_models()}
    if json:
        print_json(
            [
                asdict(entry)
                | {"memory_mb": entry.memory_mb, "disk_mb": entry.disk_mb, "is_cached": entry.name in here}
                for entry in CATALOGUE
            ]
        )
        return
    rows = [("name", "licence", "weights", "download", "disk", "memory", "context", "from")]
    rows += [
        (
            entry.name,
            entry.licence,
            f"{entry.num_weights} M",
            f"{entry.download_mb} MB",
            f"{entry.disk_mb} MB",
            f"{entry.memory_mb} MB",
            f"{entry.context}",
            f"package {entry.place}" if entry.source == "package" else f"hub {entry.place}",
        )
        for entry in CATALOGUE
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int | None], None]]:
    """Show the bytes of a download, if stderr is a terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, visible=False)

        def show(done: int, total: int | None) -> None:
            # The bar is over before the conversion begins.
            bar.update(task, completed=done, total=total, visible=done != total)

        yield show


def _print_path(path: Path, json: bool) -> None:
    if json:
        print_json({"path": str(path)})
    else:
        print(path)
