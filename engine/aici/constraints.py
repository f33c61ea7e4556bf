"""Constraints on texts. All functions return a Constraint, and raise UsageError for a wrong argument.

The parser of the controller checks the argument, on this machine, before any model runs.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, Unpack, overload

from aici.errors import NotFoundError, UsageError, shown_type
from aici_controllers import catalog, constraints
from aici_controllers.constraints import Constraint as ShippedConstraint
from aici_controllers.notations.reading import beside
from aici_controllers.schema_check import SchemaKeywords
from aici_runtime.modules.wasm_bytes import check_wasm

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Messages: TypeAlias = Sequence[Mapping[str, Any]]
"""A conversation: each message has a `role` and a `content`."""
Language: TypeAlias = Literal["javascript", "js", "python", "py", "steps"]

_GUESTS: Final[Mapping[Language, str]] = {
    "javascript": "jsctrl",
    "js": "jsctrl",
    "python": "pyctrl",
    "py": "pyctrl",
    "steps": "declctrl",
}
_GRAMMAR_FILES: Final = (".y", ".lark", ".gbnf", ".ebnf")
MAX_WASM_BYTES: Final = 128 << 20
MAX_TEXT_BYTES: Final = 4 << 20


def _same(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint(Generic[T_co]):
    """A controller and its argument, made by the functions of this module.

    `controller` is the name, tag or id of a module, or the bytes of a module. `warnings` say which parts of a schema
    are not enforced, and what is odd in a grammar. `is_script` is True for a controller of programs, which need no
    prompt. `parse` turns a complete text into `Result.value`, and raises ValueError if the text is incomplete.
    `complete` says when a text is complete: always, when `parse` takes the text, or when the controller stopped.
    """

    controller: str | bytes
    argument: str
    warnings: tuple[str, ...] = ()
    is_script: bool = False
    parse: Callable[[str], T_co] = field(repr=False)
    complete: Literal["always", "parsed", "stopped"] = "stopped"


UNCONSTRAINED: Final = Constraint(controller="none", argument="", parse=_same, complete="always")
"""The constraint of results without a constraint: the value is the text."""


def _shipped(
    constraint: ShippedConstraint,
    parse: Callable[[str], T],
    *,
    is_script: bool = False,
    complete: Literal["always", "parsed", "stopped"] = "stopped",
) -> Constraint[T]:
    return Constraint(
        controller=constraint.guest,
        argument=constraint.argument,
        warnings=constraint.warnings,
        is_script=is_script,
        parse=parse,
        complete=complete,
    )


def regex(pattern: str) -> Constraint[str]:
    r"""Return the constraint that the whole text matches a regular expression.

    >>> llm.generate("Two digits: ", aici.regex(r"\d\d")).text.isdigit()
    True
    """
    return _shipped(constraints.regex(_text(pattern, "a pattern")), _same)


def grammar(
    source: str | Path, *, name: str | None = None, syntax: Literal["y", "lark", "gbnf"] | None = None
) -> Constraint[str]:
    """Return the constraint that the whole text is a sentence of a grammar in Lark, GBNF or the notation of yacc.

    `source` is the grammar's text, a file (as a Path, or a string that ends in .y, .lark, .gbnf or .ebnf), or the name
    of a shipped grammar. With `name`, the grammar's name in messages, `source` is always the text. The extension, or
    else the text, tells the notation, unless `syntax` does.

    >>> llm.generate("A JSON list of numbers: ", aici.grammar("json"), max_tokens=8).text != ""
    True
    """
    if not isinstance(source, Path):
        _text(source, "a grammar")
        if name is not None or not (source.isidentifier() or source.endswith(_GRAMMAR_FILES)):
            return _shipped(constraints.grammar(source, name=name or "grammar", syntax=syntax), _same)
        source = catalog.grammar_path(source) if source.isidentifier() else Path(source)
    return _shipped(
        constraints.grammar(
            _read(source, "the grammar"), name=name or str(source), syntax=syntax, load=beside(source.parent)
        ),
        _same,
    )


@overload
def json_schema(schema: type[T], **options: Unpack[SchemaKeywords]) -> Constraint[T]: ...


@overload
def json_schema(schema: Mapping[str, Any] | str | bool, **options: Unpack[SchemaKeywords]) -> Constraint[Any]: ...


def json_schema(
    schema: type[Any] | Mapping[str, Any] | str | bool, **options: Unpack[SchemaKeywords]
) -> Constraint[Any]:
    """Return the constraint that the whole text is JSON under a schema. `Result.value` is the parsed JSON.

    `schema` is a JSON Schema (a dict, or JSON text) or a type: a dataclass, a TypedDict, a pydantic model, an enum, a
    `Literal`, a union, or a list, dict or tuple of these; of a type, `Result.value` is an instance. A keyword that is
    not known is an annotation and constrains nothing, and so does an unknown format. `warnings` lists such parts.

    The options:

    - `whitespace`: where the JSON may have white space: `"spaced"` (the default), `"compact"`, `"none"`, `"flexible"`.
    - `lenient=True`: drop a keyword that is known and not supported, with a warning. Otherwise such a keyword raises
      UsageError.
    - `strict_schema=True`: raise UsageError for unknown keywords and formats.
    - `objects`: `"closed"` (the default): no keys but those of `properties`, unless the schema speaks of further keys.
      `"open"`: further keys, as the specification has it.
    - `property_order`: `"declared"` (the default): keys come in the order of the schema. `"any"`: in every order.

    >>> size = {"enum": ["big", "small"]}
    >>> llm.generate("A dog is ", aici.json_schema(size)).value in ("big", "small")
    True
    """
    from aici.schemas import described

    shape = described(schema)
    shipped = constraints.json_schema(shape.schema, replace(constraints.SPACED, **options))
    return _shipped(shipped, shape.parse, complete="parsed")


def structural_tag(document: Mapping[str, Any] | str, **options: Unpack[SchemaKeywords]) -> Constraint[str]:
    """Return the constraint that the text is free, but for tags in it, whose content is constrained.

    `document` is a structural tag as XGrammar, vLLM and SGLang read it: a dict, or JSON text, with a tree of formats
    under `format`, or with `structures` and `triggers`. Free text that contains a trigger goes on with a tag that
    begins with the trigger. The options are those of `json_schema`, for all schemas of the document.

    >>> name = {"type": "tag", "begin": "<b>", "content": {"type": "regex", "pattern": "[A-Z][a-z]+"}, "end": "</b>"}
    >>> tags = {"type": "triggered_tags", "triggers": ["<b>"], "tags": [name]}
    >>> llm.generate("Who? ", aici.structural_tag({"format": tags}), max_tokens=4).text != ""
    True
    """
    text = document if isinstance(document, str) else _json(document)
    return _shipped(constraints.structural_tag(text, replace(constraints.SPACED, **options)), _same)


def choice(*texts: str) -> Constraint[str]:
    """Return the constraint that the whole text is one of `texts`.

    >>> llm.generate("Cats are ", aici.choice("animals", "plants")).value in ("animals", "plants")
    True
    """

    for each in texts:
        _text(each, "a choice", hint="give each text as an argument: choice(*texts)")

    def parse(text: str) -> str:
        if text not in texts:
            raise ValueError("no choice")
        return text

    return _shipped(constraints.choices(texts), parse, complete="parsed")


def substring(text: str, *, end: str = "") -> Constraint[str]:
    """Return the constraint that the whole output is a run of words of `text`, followed by `end`.

    >>> fact = "The river rises in the mountains."
    >>> llm.generate("Quote: ", aici.substring(fact), max_tokens=5).text in fact
    True
    """
    return _shipped(constraints.substring(_text(text, "a source"), end=_text(end, "an end")), _same)


def controller(module: str | Path | bytes, argument: object = "") -> Constraint[str]:
    """Return the constraint that a controller, a WebAssembly module, decides about every token.

    `module` is a .wasm file (as a Path, or a string with a slash or with `.wasm` at the end), the bytes of a module, or
    the name, tag or id of a module known to the machine of the request. An `argument` other than a string goes to
    the controller as JSON.

    >>> llm.generate("Two digits: ", aici.controller("regex", "[0-9]{2}")).text.isdigit()
    True
    """
    text = argument if isinstance(argument, str) else _json(argument)
    if isinstance(module, str) and (module.endswith(".wasm") or "/" in module):
        module = Path(module)
    is_script = isinstance(module, str) and module in catalog.SCRIPT_GUESTS.values()
    if isinstance(module, str) and (module in catalog.guest_names() or module in constraints.TRANSLATED):
        return _shipped(constraints.named(module, text), _same, is_script=is_script, complete="always")
    if isinstance(module, Path):
        # The content counts from here on: the file may change, or be a pipe.
        name = f"controller {module}"
        module = _read_bytes(module, name, MAX_WASM_BYTES + 1)
        _check_wasm(module, name)
    elif isinstance(module, bytes):
        _check_wasm(module, "the controller")
    elif not isinstance(module, str):
        raise UsageError(f"a controller is a file, bytes or a name, not {shown_type(module)}")
    return Constraint(controller=module, argument=text, is_script=is_script, parse=_same, complete="always")


def script(program: str | Path, language: Language | None = None) -> Constraint[str]:
    """Return the constraint that a program controls the text: JavaScript, Python (MicroPython), or JSON steps.

    `program` is a file (as a Path, or a string with the suffix), with the language told by .js, .mjs, .py or .json,
    or the text of a program together with `language`: `"javascript"` or `"js"`, `"python"` or `"py"`, or
    `"steps"`. A script may run without a prompt.

    >>> steps = '{"steps": [{"Fixed": {"text": {"String": {"str": "Hello"}}}}]}'
    >>> llm.generate("", aici.script(steps, "steps")).text
    'Hello'
    """
    if not isinstance(program, Path):
        _text(program, "a program")
    suffix = os.path.splitext(program)[1] if isinstance(program, Path) or "\n" not in program else ""
    if language is None and suffix in catalog.SCRIPT_GUESTS:
        text = _read(Path(program), "the script")
        guest = catalog.SCRIPT_GUESTS[suffix]
    elif language is None:
        raise UsageError(
            "the language of the script is not known",
            hint=f"give a .js, .py or .json file, or language=: one of {', '.join(_GUESTS)}",
        )
    elif language not in _GUESTS:
        raise UsageError(f"language {language!r} is not known", hint=f"use one of {', '.join(_GUESTS)}")
    else:
        text = _read(program, "the script") if isinstance(program, Path) else program
        guest = _GUESTS[language]
    return _shipped(constraints.script(guest, text), _same, is_script=True, complete="always")


def _text(value: object, what: str, *, hint: str = "") -> str:
    """Return an argument that is a text. Raise UsageError for another type."""
    if not isinstance(value, str):
        raise UsageError(f"{what} is a text, not {shown_type(value)}", hint=hint)
    return value


def _read_bytes(path: Path, what: str, num_bytes: int) -> bytes:
    try:
        with path.expanduser().open("rb") as file:
            return file.read(num_bytes)
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the path; `~` of an unknown user
        why = error.strerror if isinstance(error, OSError) else error
        raise NotFoundError(f"{what} cannot be read: {path}: {why}") from error


def _read(path: Path, what: str) -> str:
    """Return the text of a file, without a byte order mark."""
    content = _read_bytes(path, what, MAX_TEXT_BYTES + 1)
    if len(content) > MAX_TEXT_BYTES:
        raise UsageError(f"{what} is larger than {MAX_TEXT_BYTES >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is not UTF-8: {path}: {error.reason} at byte {error.start}") from error


def _check_wasm(content: bytes, name: str) -> None:
    if len(content) > MAX_WASM_BYTES:
        raise UsageError(f"{name} is larger than {MAX_WASM_BYTES >> 20} MiB")
    check_wasm(content, name)


def _json(argument: object) -> str:
    try:
        return json.dumps(argument, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the argument of the controller is not JSON: {error}") from error
