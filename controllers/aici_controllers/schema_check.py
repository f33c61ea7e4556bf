"""Check a JSON Schema, and texts against a schema, with the code of generation, before anything is loaded.

The code is inside the guest `json_schema`; `controllers/guests/json_schema/README.md` lists what is supported.
"""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aici_controllers.ask_guest import ask

Whitespace = Literal["compact", "none", "spaced", "flexible"]
Formats = Literal["strict", "known"]


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """A part of the schema that cannot be honoured. `pointer` (RFC 6901) points to the keyword; "" is the whole
    schema."""

    pointer: str
    keyword: str
    message: str

    def show(self) -> str:
        """Return the line that the guest writes to its log: the pointer, then the message."""
        return f"json schema error at #{self.pointer}: {self.message}"


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """The result of a check. `problems`: reasons why nothing can be generated. `dropped`: parts ignored because of
    `lenient`.

    `texts`: for every checked text None if the schema allows the text, else the length in bytes of its longest prefix
    that begins an allowed text. Empty if there are problems.
    """

    problems: tuple[SchemaProblem, ...]
    dropped: tuple[SchemaProblem, ...]
    texts: tuple[int | None, ...]


def schema_argument(
    schema: object, *, whitespace: Whitespace = "compact", lenient: bool = False, formats: Formats = "strict"
) -> bytes:
    """Return the argument of the guest `json_schema`. `schema`: the document, or its text (str), in which numbers
    keep their digits."""
    text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
    options = {"whitespace": whitespace, "lenient": lenient, "formats": formats}
    return f'{json.dumps(options)[:-1]}, "schema": {text}}}'.encode()


def check_schema(
    schema: object,
    texts: Sequence[str] = (),
    *,
    whitespace: Whitespace = "compact",
    lenient: bool = False,
    formats: Formats = "strict",
) -> SchemaReport:
    """Check a schema. `schema`: as for `schema_argument`. Raise UnavailableError if the guests are not built."""
    try:
        if isinstance(schema, str):
            with contextlib.suppress(RecursionError):  # nested too deeply; the guest has a limit and a better message
                json.loads(schema)
        argument = schema_argument(schema, whitespace=whitespace, lenient=lenient, formats=formats)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return SchemaReport((SchemaProblem("", "", f"not JSON: {where}: {error.msg}"),), (), ())
    except UnicodeEncodeError:
        return SchemaReport((SchemaProblem("", "", "a lone surrogate is no character"),), (), ())
    report = parse_report(ask("json_schema", with_texts(argument, texts)))
    if isinstance(schema, str) and _is_no_json(report):
        # Python accepts NaN and repeated keys. The guest reports line and column when asked about the text alone.
        alone = parse_report(ask("json_schema", schema.encode()))
        return alone if _is_no_json(alone) else report
    return report


def _is_no_json(report: SchemaReport) -> bool:
    return any(problem.message.startswith("the argument is not JSON: ") for problem in report.problems)


def with_texts(argument: bytes, texts: Sequence[str]) -> bytes:
    """Return the question whether `texts` are allowed, made from the guest's argument."""
    return argument[:-1] + b', "texts": ' + json.dumps(list(texts), ensure_ascii=False).encode() + b"}"


def parse_report(answer: Any) -> SchemaReport:
    problems, dropped = (tuple(SchemaProblem(**problem) for problem in answer[key]) for key in ("problems", "dropped"))
    return SchemaReport(problems, dropped, tuple(answer["texts"]))
