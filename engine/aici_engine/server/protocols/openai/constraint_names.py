"""The names that vLLM, SGLang and llama.cpp have for constraints."""

import re
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from aici_base.errors import UsageError
from aici_controllers.schema_check import SchemaOptions
from aici_engine.server.protocols.constraint_fields import ConstraintFields, WantedConstraint
from aici_engine.server.protocols.strict_body import StrictBody

_MAX_WHITESPACE_PATTERN = 256


class StructuredOutputs(StrictBody):
    """vLLM's constraint. One of `json`, `json_object`, `regex`, `choice`, `grammar` and
    `structural_tag` is given.

    `whitespace_pattern`: text allowed between the parts of a JSON text. The answer has single spaces or none, so each
    pattern that matches the empty text is kept to. `disable_any_whitespace` and `disable_fallback` have no effect: the
    white space is fixed and there is no fallback.
    """

    json_: Annotated[str | dict[str, Any] | bool | None, Field(alias="json")] = None
    json_object: bool = False
    regex: str | None = None
    choice: Annotated[list[str], Field(min_length=1)] | None = None
    grammar: str | None = None
    structural_tag: str | dict[str, Any] | None = None
    whitespace_pattern: Annotated[str, Field(max_length=_MAX_WHITESPACE_PATTERN)] | None = None
    disable_any_whitespace: bool = False
    disable_fallback: bool = False
    disable_additional_properties: bool = False


class ConstraintNames(ConstraintFields):
    """A request has at most one constraint, under any name.

    `structured_outputs` and `guided_whitespace_pattern` are vLLM's, `regex`, `ebnf` and `json_schema` SGLang's,
    `grammar` and `json_schema` llama.cpp's. `guided_decoding_backend` has no effect: there is one backend.
    """

    structured_outputs: StructuredOutputs | None = None
    guided_decoding_backend: str | None = None
    guided_whitespace_pattern: Annotated[str, Field(max_length=_MAX_WHITESPACE_PATTERN)] | None = None
    regex: str | None = None
    json_schema: str | dict[str, Any] | bool | None = None
    ebnf: str | None = None
    grammar: str | None = None

    def options(self, *, strict: bool = False) -> SchemaOptions:
        options = super().options(strict=strict)
        pattern = self.guided_whitespace_pattern
        return options if pattern is None else _spaced_as(pattern, options, "guided_whitespace_pattern")

    def wanted(self) -> list[WantedConstraint]:
        gbnf = self.grammar_syntax or "gbnf"
        found = [
            *super().wanted(),
            WantedConstraint("regex", "regex", self.regex),
            WantedConstraint("json_schema", "json_schema", self.json_schema, options=self.options()),
            WantedConstraint("ebnf", "grammar", self.ebnf, syntax=gbnf),
            WantedConstraint("grammar", "grammar", self.grammar, syntax=gbnf),
        ]
        if self.structured_outputs is not None:
            found += self._structured(self.structured_outputs)
        return [each for each in found if each.value is not None]

    def _structured(self, outputs: StructuredOutputs) -> list[WantedConstraint]:
        options = self.options(strict=outputs.disable_additional_properties)
        if outputs.whitespace_pattern is not None:
            options = _spaced_as(outputs.whitespace_pattern, options, "structured_outputs.whitespace_pattern")
        any_object = {"type": "object"} if outputs.json_object else None
        found = [
            WantedConstraint("structured_outputs.json", "json_schema", outputs.json_, options=options),
            WantedConstraint("structured_outputs.json_object", "json_schema", any_object, options=options),
            WantedConstraint("structured_outputs.regex", "regex", outputs.regex),
            WantedConstraint("structured_outputs.choice", "choice", outputs.choice),
            WantedConstraint("structured_outputs.grammar", "grammar", outputs.grammar, syntax=self.grammar_syntax),
            WantedConstraint(
                "structured_outputs.structural_tag", "structural_tag", outputs.structural_tag, options=options
            ),
        ]
        given = [each for each in found if each.value is not None]
        if not given:
            names = "json, json_object, regex, choice, grammar or structural_tag"
            raise UsageError(f"structured_outputs has no constraint: give {names}", param="structured_outputs")
        return given


def _spaced_as(pattern: str, options: SchemaOptions, field: str) -> SchemaOptions:
    """Return options whose white space a pattern matches. Raises UsageError for a pattern that no options keep to.

    Python's `re` tries all ways through nested groups, which may take years. Without groups the ways are few.
    """
    if "(" in pattern:
        raise UsageError(f"{field} has a group", hint="use classes and counts, such as [ \\n]*", param=field)
    try:
        fits = {text: re.fullmatch(pattern, text) is not None for text in ("", " ")}
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{field} is no regular expression: {error}", param=field) from error
    if not fits[""]:
        raise UsageError(f"{field} demands white space", hint="give a pattern that matches no text too", param=field)
    return options if fits[" "] else replace(options, whitespace="compact")
