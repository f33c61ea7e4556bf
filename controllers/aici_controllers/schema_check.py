"""Check a JSON Schema, and texts against a schema, with the code of generation, before anything is loaded.

The code is inside the guest `json_schema`; `controllers/guests/json_schema/README.md` lists what is supported.
"""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypedDict

from aici_controllers.ask_guest import ask
from aici_controllers.check_cost import LONG_FUEL, one_tank

Whitespace = Literal["compact", "none", "spaced", "flexible"]
Objects = Literal["closed", "open"]
PropertyOrder = Literal["declared", "any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOptions:
    """How a schema is read, as the argument of the guest `json_schema` has it.

    `whitespace` says where the JSON may have white space. `lenient` drops a keyword that is known and cannot be
    honoured; without it such a keyword is a problem. `strict_schema` makes problems of what is otherwise a warning:
    unknown keywords, unknown formats, formats of another type, and formats beside a pattern. `objects`: whether an
    object may have further keys if its schema has `properties` and says nothing of further keys. `property_order`:
    keys come as the schema declares them, or in any order.
    """

    whitespace: Whitespace = "compact"
    lenient: bool = False
    strict_schema: bool = False
    objects: Objects = "closed"
    property_order: PropertyOrder = "declared"


class SchemaKeywords(TypedDict, total=False):
    """The fields of SchemaOptions, as keywords."""

    whitespace: Whitespace
    lenient: bool
    strict_schema: bool
    objects: Objects
    property_order: PropertyOrder


DEFAULTS: Final = SchemaOptions()


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """A part of the schema that cannot be honoured, or is not enforced. `pointer` (RFC 6901) points to the keyword; ""
    is the whole schema."""

    pointer: str
    keyword: str
    message: str

    def show(self) -> str:
        """Return the line that the guest writes to its log: the pointer, then the message."""
        return f"json schema error at #{self.pointer}: {self.message}"

    def show_warning(self) -> str:
        """Return the line for a user about a part that is not enforced."""
        return f"not enforced: #{self.pointer}: {self.message}"


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """The result of a check. `problems`: reasons why nothing can be generated. `warnings`: parts of the schema that are
    not enforced, the first 100.

    `texts`: for every checked text None if the schema allows the text, else the length in bytes of its longest prefix
    that begins an allowed text. Empty if there are problems.
    """

    problems: tuple[SchemaProblem, ...]
    warnings: tuple[SchemaProblem, ...]
    texts: tuple[int | None, ...]


def schema_argument(schema: object, options: SchemaOptions = DEFAULTS) -> bytes:
    """Return the argument of the guest `json_schema`. `schema`: the document, or its text (str), in which numbers
    keep their digits."""
    text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
    return f'{json.dumps(asdict(options))[:-1]}, "schema": {text}}}'.encode()


def schema_with_options(schema: dict[str, Any] | bool, options: SchemaOptions) -> str:
    """Return a schema for `%json` of the guest `grammar`, as JSON text: `x-aici-options` says how it is read."""
    rest = {"not": {}} if schema is False else {} if schema is True else schema
    return json.dumps({**rest, "x-aici-options": asdict(options)}, ensure_ascii=False)


def check_schema(schema: object, texts: Sequence[str] = (), options: SchemaOptions = DEFAULTS) -> SchemaReport:
    """Check a schema. `schema`: as for `schema_argument`. Raise UnavailableError if the guests are not built."""
    try:
        if isinstance(schema, str):
            with contextlib.suppress(RecursionError):  # nested too deeply; the guest has a limit and a better message
                json.loads(schema)
        argument = schema_argument(schema, options)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return SchemaReport((SchemaProblem("", "", f"not JSON: {where}: {error.msg}"),), (), ())
    except UnicodeEncodeError:
        return SchemaReport((SchemaProblem("", "", "a lone surrogate is no character"),), (), ())
    with one_tank(LONG_FUEL if texts else None):
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
    problems, warnings = (
        tuple(SchemaProblem(**problem) for problem in answer[key]) for key in ("problems", "warnings")
    )
    return SchemaReport(problems, warnings, tuple(answer["texts"]))
