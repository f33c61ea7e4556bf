"""`aici ctrl upload | tag | tags`: the controllers of a server."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aici_cli.constraint import read_wasm
from aici_cli.output import print_json, say
from aici_runtime.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from aici_cli.remote import Remote

Server = Annotated[
    str | None,
    typer.Option(envvar="AICI_API_BASE", help="Its URL (default: http://127.0.0.1:4242); a key behind #key=."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def upload(
    wasm: Annotated[Path, typer.Argument(metavar="FILE.wasm", help="The controller.")],
    tag: Annotated[list[str] | None, typer.Option(help="A name for it there; several times.")] = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Give a controller to a server, and print its id there. The same one again is no error."""
    module = read_wasm(wasm)
    remote = _remote(server)
    told = remote.upload(module)
    tags = remote.set_tags(told["module_id"], tag) if tag else []
    if json:
        print_json(told | {"tags": tags})
        return
    print(told["module_id"])
    say(f"{told['wasm_size']:,} bytes, compiled {told['compiled_size']:,} bytes")
    for each in tags:
        say(f"tagged {each['tag']}")


def set_tags(
    controller: Annotated[str, typer.Argument(help="A module's id, or a tag that it has.")],
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="Its new names.")],
    server: Server = None,
    json: Json = False,
) -> None:
    """Name a controller on a server. A name that another one has goes over to this one."""
    from aici_runtime.tags import is_module_id

    remote = _remote(server)
    module_id = controller if is_module_id(controller) else _by_tag(remote, controller)
    told = remote.set_tags(module_id, tags)
    if json:
        print_json(told)
        return
    for tag in told:
        print(_line(tag))


def list_tags(server: Server = None, json: Json = False) -> None:
    """List the names of a server's controllers."""
    told = _remote(server).tags()
    if json:
        print_json(told)
        return
    for tag in sorted(told, key=lambda tag: str(tag["tag"])):
        print(_line(tag))


def _remote(url: str | None) -> "Remote":
    from aici_cli.remote import DEFAULT_URL, Remote

    return Remote(url or DEFAULT_URL)


def _by_tag(remote: "Remote", tag: str) -> str:
    for known in remote.tags():
        if known["tag"] == tag:
            return str(known["module_id"])
    raise NotFoundError(f"the server has no controller called {tag}", hint="`aici ctrl tags` lists them")


def _line(tag: "Mapping[str, Any]") -> str:
    date = time.strftime("%Y-%m-%d %H:%M", time.localtime(tag["updated_at"]))
    sizes = f"{tag['wasm_size']:>10,} bytes"
    return f"{tag['tag']:<24} {tag['module_id'][:8]}  {sizes}  {date} by {tag['updated_by']}"
