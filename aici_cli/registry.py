"""`aici ctrl upload | pull | list | tag | tags | rm`: the controllers of a server, or of this machine."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aici_base.errors import UsageError
from aici_cli.files import read_wasm
from aici_cli.output import print_json, say
from aici_cli.tables import print_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aici_runtime.modules.registry import Module
    from aici_runtime.wire import TagInfo

Server = Annotated[
    str | None,
    typer.Option(
        envvar="AICI_API_BASE", help="The URL of a server, with a key behind #key= (default: this machine's store)."
    ),
]
Share = Annotated[bool, typer.Option("--share", help="Show the controller to all keys of the server.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def upload(
    wasm: Annotated[str, typer.Argument(metavar="[NAME=]FILE.wasm", help="The controller. NAME becomes a tag.")],
    tag: Annotated[list[str] | None, typer.Option(help="A tag for the controller; repeat for more tags.")] = None,
    share: Share = False,
    server: Server = None,
    json: Json = False,
) -> None:
    """Store a controller and print the id. Storing the same controller again is no error."""
    name, path = _named(wasm)
    tags = _checked([*name, *(tag or [])])
    module = read_wasm(path)
    from aici_cli.controller_stores import open_store

    store = open_store(server)
    told = store.upload(module, share=share)
    infos = store.set_tags(told.module_id, tags) if tags else []
    if json:
        # The same document as a server's.
        sizes = {"wasm_size": told.wasm_size, "compiled_size": told.compiled_size, "time": told.time_ms}
        print_json({"module_id": told.module_id, **sizes, "tags": [asdict(info) for info in infos]})
        return
    print(told.module_id)
    say(f"{told.wasm_size:,} bytes, compiled {told.compiled_size:,} bytes")
    for info in infos:
        say(f"tagged {info.tag}")


def pull(
    name: Annotated[str, typer.Argument(metavar="ID|TAG", help="The controller's id or tag.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the controller to this file, and not to this machine's store."),
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag on this machine; repeat for more tags.")] = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Copy a controller from a server to this machine and print the id; or write a controller to a file."""
    from aici_base.cache_files import write_atomically
    from aici_cli.controller_stores import LocalStore, module_id_of, open_store

    if out is None and server is None:
        raise UsageError(
            "no server is given to pull from",
            hint="give --server URL; or -o FILE to write a controller of this machine to a file",
        )
    if out is not None and tag:
        raise UsageError("--tag is for a controller that is kept: it does not go with -o")
    tags = _checked(tag or [])
    module = open_store(server).fetch(name)
    module_id = module_id_of(module)
    if out is not None:
        write_atomically(out, module, hint="choose another file with -o")
    else:
        local = LocalStore()
        local.upload(module)
        if tags:
            local.set_tags(module_id, tags)
    if json:
        path = None if out is None else str(out)
        print_json({"module_id": module_id, "wasm_size": len(module), "path": path, "tags": tags})
    else:
        print(module_id)


def list_modules(server: Server = None, json: Json = False) -> None:
    """List the controllers: id, size, size of compiled code (- if not compiled), date and user, tags."""
    from aici_cli.controller_stores import open_store

    modules = open_store(server).modules()
    if json:
        print_json([asdict(module) for module in modules])
        return
    print_rows(map(_module_cells, modules))


def set_tags(
    controller: Annotated[str, typer.Argument(help="The controller's id, or a tag.")],
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="New tags of the controller.")],
    share: Share = False,
    server: Server = None,
    json: Json = False,
) -> None:
    """Tag a controller. A tag of another controller moves to this controller."""
    from aici_cli.controller_stores import find, open_store

    _checked(tags)
    store = open_store(server)
    _show(store.set_tags(find(store, controller), tags, share=share), json=json)


def list_tags(server: Server = None, json: Json = False) -> None:
    """List the tags of controllers."""
    from aici_cli.controller_stores import open_store

    _show(sorted(open_store(server).tags(), key=lambda info: info.tag), json=json)


def remove(
    names: Annotated[
        list[str],
        typer.Argument(metavar="ID|TAG...", help="A tag, to remove the tag alone, or an id, to remove the controller."),
    ],
    force: Annotated[bool, typer.Option("--force", help="Remove the tags of a controller too.")] = False,
    server: Server = None,
    json: Json = False,
) -> None:
    """Remove tags, and controllers without tags."""
    from aici_cli.controller_stores import open_store
    from aici_runtime.modules.tags import is_module_id

    store = open_store(server)
    removed: list[dict[str, object]] = []
    for name in names:
        if is_module_id(name):
            removed.append({"module_id": name, "tags": store.remove(name, force=force)})
        else:
            store.remove_tag(name)
            removed.append({"tag": name})
        if not json:
            print(name)
    if json:
        print_json(removed)


def _named(argument: str) -> tuple[list[str], Path]:
    """Return the tag before a `=`, if any, and the file. A tag has no slash: ./a=b.wasm is a file."""
    name, equals, file = argument.partition("=")
    return ([name], Path(file)) if equals and "/" not in name else ([], Path(argument))


def _checked(tags: "list[str]") -> "list[str]":
    """Check tags before the upload: a tag refused afterwards would leave a controller without a name."""
    from aici_controllers.store import check_free
    from aici_runtime.channels.envelope import Auth
    from aici_runtime.modules.tags import check_tag

    check_free(tags)
    for tag in tags:
        try:
            check_tag(tag, Auth(is_admin=True))
        except UsageError as error:
            raise error.with_message(f"{tag!r}: {error.message}") from error
    return tags


def _show(tags: "Sequence[TagInfo]", *, json: bool) -> None:
    if json:
        print_json([asdict(tag) for tag in tags])
        return
    print_rows(
        (tag.tag, tag.module_id[:8], f"{tag.wasm_size:,} bytes", f"{_date(tag.updated_at)} by {tag.updated_by}")
        for tag in tags
    )


def _module_cells(module: "Module") -> list[str]:
    code = "-" if module.compiled_size is None else f"{module.compiled_size:,}"
    made = f"{_date(module.created)} by {module.created_by or '?'}"
    return [module.module_id, f"{module.wasm_size:,}", code, made, " ".join(module.tags)]


def _date(unix_s: int | None) -> str:
    return f"{'-':<16}" if unix_s is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(unix_s))
