"""`aici ctrl`: write, build, test and store controllers."""

import contextlib
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aici_cli import registry
from aici_cli.files import read_wasm
from aici_cli.output import print_json, say

if TYPE_CHECKING:
    from aici_controllers.case_runner import Outcome

app = typer.Typer(
    help="Write, build, test and store your own controllers, here or on a server.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command(name="upload")(registry.upload)
app.command(name="pull")(registry.pull)
app.command(name="list")(registry.list_modules)
app.command(name="tag")(registry.set_tags)
app.command(name="tags")(registry.list_tags)
app.command(name="rm")(registry.remove)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Language(StrEnum):
    CPP = "cpp"
    C = "c"
    ZIG = "zig"
    RUST = "rust"
    ASSEMBLYSCRIPT = "assemblyscript"


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the controller and of the new folder.")],
    lang: Annotated[Language, typer.Option(help="Language of the controller.")] = Language.CPP,
    dir: Annotated[Path, typer.Option(help="Parent of the new folder.")] = Path(),  # noqa: A002
    json: Json = False,
) -> None:
    """Write the folder of a small controller, with test cases."""
    from aici_controllers.starter_files import write_starter

    folder = write_starter(name, str(lang), dir)
    if json:
        print_json({"path": str(folder), "files": sorted(str(path) for path in folder.rglob("*") if path.is_file())})
        return
    print(folder)
    say(f"next: aici ctrl build {folder}")


Folder = Annotated[Path, typer.Argument(help="Folder for the files.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace existing files.")]


@app.command(name="init-js")
def init_js(folder: Folder = Path(), force: Force = False, json: Json = False) -> None:
    """Write a first script in JavaScript, with type declarations for editors."""
    _write_starter("javascript", folder, "hello.js", force=force, json=json)


@app.command(name="init-py")
def init_py(folder: Folder = Path(), force: Force = False, json: Json = False) -> None:
    """Write a first script in Python, with type stubs for editors."""
    _write_starter("python", folder, "hello.py", force=force, json=json)


def _write_starter(language: str, folder: Path, script: str, *, force: bool, json: bool) -> None:
    from aici_controllers.starter_files import write_script_starter

    files = write_script_starter(language, folder, force=force)
    if json:
        print_json({"path": str(folder), "files": [str(path) for path in files]})
        return
    for path in files:
        print(path)
    say(f"next: aici run {folder / script}")


@app.command()
def build(
    path: Annotated[Path, typer.Argument(help="A source file, or a folder with all sources.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Path of the module (default: NAME.wasm beside the source).")
    ] = None,
    json: Json = False,
) -> None:
    """Compile a controller from C, C++, Zig, Rust or AssemblyScript, and check the module."""
    from aici_controllers import zig
    from aici_controllers.build_project import build_project, find_project
    from aici_controllers.sdk import is_sdk_compiled

    project = find_project(path)
    if project.language in ("C", "C++") and not is_sdk_compiled():
        say("compiling the SDK (once): a minute or two")
    elif project.language in ("C", "C++", "Zig") and not zig.has_cache():
        say("the toolchain compiles its own library first (once): up to a minute or two")
    built = build_project(project, out or project.folder / f"{project.name}.wasm")
    if built.warnings:
        say(built.warnings.rstrip("\n"))
    if json:
        print_json({"path": str(built.path), "language": built.language, "size_bytes": built.size_bytes})
    else:
        print(f"{built.path}  {built.size_bytes:,} bytes  {built.language}")


@app.command(name="test")
def run_cases(
    wasm: Annotated[Path, typer.Argument(metavar="FILE.wasm", help="The controller.")],
    cases: Annotated[Path, typer.Argument(help="A TOML file with test cases (see controllers/README.md).")],
    tokenizer: Annotated[
        str | None, typer.Option(help="A model's name or folder, or a tokenizer.json (default: single bytes).")
    ] = None,
    json: Json = False,
) -> None:
    """Test a controller with cases and without a model: masks, forced text, forks, stops, logs, variables."""
    from aici_base.tokenizer.tokens import tokenizer_file
    from aici_controllers.case_file import read_cases
    from aici_controllers.case_runner import CaseRunner, Tokens
    from aici_runtime.client import Runtime, RuntimeConfig

    file = read_cases(cases)
    module = read_wasm(wasm)
    with contextlib.ExitStack() as stack:
        if tokenizer is None:
            from aici_controllers.byte_tokenizer import write_byte_tokenizer

            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aici-cases-")))
            tokenizer_json = write_byte_tokenizer(folder, file.tokens)
        else:
            tokenizer_json = tokenizer_file(str(_tokenizer(tokenizer)))
        config = RuntimeConfig(tokenizer=tokenizer_json, json_size_mib=8 + (len(module) >> 19))
        runtime = stack.enter_context(Runtime(config))
        tokens = Tokens(tokenizer_json)
        runtime.wait_ready()
        runner = CaseRunner(runtime, tokens, runtime.mk_module(module).module_id)
        outcomes = []
        for case in file.cases:
            outcomes.append(runner.run(case))
            if not json:
                _show(outcomes[-1])
    failed = sum(not outcome.ok for outcome in outcomes)
    if json:
        print_json([_document(outcome) for outcome in outcomes])
    else:
        say(f"{len(outcomes)} cases, {failed} failed")
    raise typer.Exit(1 if failed else 0)


@app.command()
def schema() -> None:
    """Print the JSON Schema of declarative steps (declctrl), for editors."""
    from aici_controllers.catalog import steps_schema_path

    print(steps_schema_path().read_text("utf-8"), end="")


def _tokenizer(name: str) -> Path:
    path = Path(name).expanduser()
    if path.exists():
        return path
    from aici_engine.store.resolve import resolve_model

    return resolve_model(name, fetch=False)


def _show(outcome: "Outcome") -> None:
    if outcome.ok:
        print(f"ok    {outcome.name}", flush=True)
        return
    where = f"step {outcome.step}: " if outcome.step else ""
    print(f"FAIL  {outcome.name}: {where}{outcome.message}", flush=True)
    for line in outcome.log.splitlines():
        print(f"      log: {line}", flush=True)


def _document(outcome: "Outcome") -> dict[str, object]:
    return {
        "name": outcome.name,
        "ok": outcome.ok,
        "step": outcome.step,
        "message": outcome.message,
        "log": outcome.log,
    }
