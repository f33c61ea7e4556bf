"""Checks a JSON Schema before anything is loaded for it, and texts against it, with what constrains generation.

All of it is inside the guest `json_schema`. What it supports: `controllers/guests/json_schema/README.md`.
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
    """What cannot be honoured. `pointer` (RFC 6901) leads to the keyword, "" to the schema as a whole."""

    pointer: str
    keyword: str
    message: str

    def show(self) -> str:
        """What the guest writes to its log: the message after the pointer."""
        return f"json schema error at #{self.pointer}: {self.message}"


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """With `problems` nothing can be generated; `dropped` is what is left out because of `lenient`.

    `texts` has for each text None when the schema allows it, else how many of its bytes are the beginning of an
    allowed text; empty when there are problems.
    """

    problems: tuple[SchemaProblem, ...]
    dropped: tuple[SchemaProblem, ...]
    texts: tuple[int | None, ...]


def schema_argument(
    schema: object, *, whitespace: Whitespace = "compact", lenient: bool = False, formats: Formats = "strict"
) -> bytes:
    """The argument of the guest `json_schema`. `schema` is the document, or its text (str), which keeps its numbers."""
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
    """UnavailableError when the guests are not built. `schema`: as for `schema_argument`."""
    try:
        if isinstance(schema, str):
            with contextlib.suppress(RecursionError):  # the guest, which has a bound, says it better
                json.loads(schema)
        argument = schema_argument(schema, whitespace=whitespace, lenient=lenient, formats=formats)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return SchemaReport((SchemaProblem("", "", f"not JSON: {where}: {error.msg}"),), (), ())
    except UnicodeEncodeError:
        return SchemaReport((SchemaProblem("", "", "a lone surrogate is no character"),), (), ())
    report = parse_report(ask("json_schema", with_texts(argument, texts)))
    if isinstance(schema, str) and _is_no_json(report):
        # Python takes NaN and keys that come twice. Asked about the text alone, the guest gives its lines and columns.
        alone = parse_report(ask("json_schema", schema.encode()))
        return alone if _is_no_json(alone) else report
    return report


def _is_no_json(report: SchemaReport) -> bool:
    return any(problem.message.startswith("the argument is not JSON: ") for problem in report.problems)


def with_texts(argument: bytes, texts: Sequence[str]) -> bytes:
    """The question whether `texts` are allowed, from the guest's argument."""
    return argument[:-1] + b', "texts": ' + json.dumps(list(texts), ensure_ascii=False).encode() + b"}"


def parse_report(answer: Any) -> SchemaReport:
    problems, dropped = (tuple(SchemaProblem(**problem) for problem in answer[key]) for key in ("problems", "dropped"))
    return SchemaReport(problems, dropped, tuple(answer["texts"]))
