"""The constraint that the flags of a command describe, checked before anything heavy is loaded."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aici_base.errors import NotFoundError, UsageError
from aici_cli.files import check_utf8, read_bytes, read_text
from aici_cli.grammar import read_grammar
from aici_cli.output import say
from aici_runtime.modules.wasm_bytes import check_wasm

if TYPE_CHECKING:
    from aici_controllers.constraints import Constraint
    from aici_controllers.schema_check import Whitespace

MAX_WASM_BYTES = 128 << 20
MAX_TEXT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """As the user gave them; None and empty: not given."""

    regex: str | None = None
    grammar: str | None = None
    json_schema: str | None = None
    whitespace: "Whitespace | None" = None
    lenient: bool = False
    choice: Sequence[str] = ()
    choices: Path | None = None
    substring: Path | None = None
    controller: str | None = None
    controller_arg: str | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """A controller's module and its argument. `name`: what a server knows it by; None for a file of the user's.

    Of what only the server has, `wasm` is empty.
    """

    wasm: bytes
    argument: str
    name: str | None


def control_from(flags: Flags, *, on_server: bool = False) -> Control | None:
    """None when nothing constrains. UsageError for what cannot be together or is wrong in itself.

    `on_server`: a controller may be one of which only the server knows.
    """
    kinds = {
        "--regex": flags.regex is not None,
        "--grammar": flags.grammar is not None,
        "--json-schema": flags.json_schema is not None,
        "--choice": bool(flags.choice) or flags.choices is not None,
        "--substring": flags.substring is not None,
        "--controller": flags.controller is not None,
    }
    given = [kind for kind, is_given in kinds.items() if is_given]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: each is a constraint on the whole output")
    if flags.controller_arg is not None and flags.controller is None:
        raise UsageError("--controller-arg needs --controller", hint="name FILE.wasm or a shipped controller")
    if flags.json_schema is None and (flags.whitespace is not None or flags.lenient):
        raise UsageError("--whitespace and --lenient go with --json-schema")
    if flags.controller is not None:
        return _controller(flags.controller, flags.controller_arg or "", on_server=on_server)
    constraint = _shipped(flags)
    return None if constraint is None else _control(constraint)


def script_control(guest: str, program: str, *, on_server: bool) -> Control:
    """A program for the shipped controller that runs such."""
    from aici_controllers import constraints
    from aici_controllers.catalog import guest_names

    if on_server and guest not in guest_names():
        return Control(b"", program, guest)
    return _control(constraints.named(guest, program))


def _control(constraint: "Constraint") -> Control:
    from aici_controllers.catalog import guest_path

    for note in constraint.notes:
        say(f"note: {note}")
    return Control(read_wasm(guest_path(constraint.guest)), constraint.argument, constraint.guest)


def _shipped(flags: Flags) -> "Constraint | None":
    from aici_controllers import constraints

    if flags.regex is not None:
        check_utf8(flags.regex, "--regex")
        return constraints.regex(flags.regex)
    if flags.grammar is not None:
        name, text = read_grammar(flags.grammar)
        return constraints.grammar(text, name=name)
    if flags.json_schema is not None:
        schema = _schema_text(flags.json_schema)
        return constraints.json_schema(schema, whitespace=flags.whitespace or "spaced", lenient=flags.lenient)
    if flags.choice or flags.choices is not None:
        for choice in flags.choice:
            check_utf8(choice, "--choice")
        return constraints.choices([*flags.choice, *_lines(flags.choices)])
    if flags.substring is not None:
        text = read_text(flags.substring, "--substring", MAX_TEXT_BYTES)
        return constraints.substring(
            text.removesuffix("\n").removesuffix("\r")
        )  # the end of the last line is no part of its last word
    return None


def _schema_text(given: str) -> str:
    """A schema is an object, true or false; anything else names a file."""
    if given.lstrip().startswith("{") or given.strip() in {"true", "false"}:
        check_utf8(given, "--json-schema")
        return given
    if given.lstrip()[:1] in ("[", '"') and not os.path.exists(given):
        raise UsageError(f"--json-schema {given}: a schema is an object, true or false", hint="give one, or a file")
    return read_text(Path(given), "--json-schema", MAX_TEXT_BYTES)


def _lines(path: Path | None) -> list[str]:
    if path is None:
        return []
    lines = read_text(path, "--choices", MAX_TEXT_BYTES).split(
        "\n"
    )  # splitlines() would also part at U+2028 and others
    return [line for line in (line.removesuffix("\r") for line in lines) if line]


def _controller(controller: str, argument: str, *, on_server: bool) -> Control:
    from aici_controllers import constraints
    from aici_controllers.catalog import guest_names

    if argument.startswith("@"):
        argument = read_text(Path(argument[1:]), f"--controller-arg {argument}", MAX_TEXT_BYTES)
    check_utf8(argument, "--controller-arg")
    if controller.endswith(".wasm") or "/" in controller:
        return Control(read_wasm(Path(controller)), argument, None)
    if on_server and controller not in guest_names():
        return Control(b"", argument, controller)
    if controller not in guest_names():
        return Control(_kept(controller), argument, None)
    return _control(constraints.named(controller, argument))


def _kept(name: str) -> bytes:
    """A controller of this machine's store, by its id or tag."""
    from aici_cli.places import Local
    from aici_controllers.catalog import guest_path

    try:
        return Local().fetch(name)
    except NotFoundError as error:
        guest_path("regex")  # when nothing is built, that is the news
        raise NotFoundError(f"no controller is called {name!r}", hint=error.hint) from error


def read_wasm(path: Path) -> bytes:
    wasm = read_bytes(path, f"controller {path}", MAX_WASM_BYTES)
    check_wasm(wasm, str(path), hint="name a .wasm file that was built as a controller")
    return wasm
