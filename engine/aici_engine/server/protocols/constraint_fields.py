"""The constraint fields that this server adds to the OpenAI, Anthropic and LMTP protocols."""

import json
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel, Field

from aici_base.errors import UsageError
from aici_controllers.constraints import SPACED
from aici_controllers.notations.tree import GrammarSyntax
from aici_controllers.schema_check import SchemaOptions
from aici_engine.chat.tool_syntax import ToolSyntax
from aici_engine.chat.turn import ToolChoice
from aici_engine.server.errors import about
from aici_engine.server.protocols.schema_fields import SchemaFields
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.constraints import CheckedCall, Constraints


class ChecksConstraints(Protocol):
    """A service, or all models of a server: a constraint does not depend on the model."""

    constraints: Constraints


class ConstraintFields(BaseModel):
    """A request has at most one of these constraints.

    `guided_grammar`: a grammar's text in Lark, GBNF or yacc's notation; `grammar_syntax` may name the notation.

    `structural_tag`: free text with constrained tags: the document of XGrammar, vLLM and SGLang.

    `schema_options`: how the schemas of the request are read, also those of tools and of the response's format.
    """

    guided_regex: str | None = None
    guided_json: str | dict[str, Any] | bool | None = None
    guided_choice: Annotated[list[str], Field(min_length=1)] | None = None
    guided_grammar: str | None = None
    grammar_syntax: GrammarSyntax | None = None
    structural_tag: str | dict[str, Any] | None = None
    controller: str | None = None
    controller_arg: Any = None
    schema_options: SchemaFields | None = None

    def options(self, *, strict: bool = False) -> SchemaOptions:
        """Return how a schema of the request is read. `strict`: as the protocol's `strict`, which closes objects."""
        options = SPACED if self.schema_options is None else self.schema_options.options()
        return replace(options, objects="closed") if strict else options

    def wanted(self) -> list["WantedConstraint"]:
        """Return the constraints that the request has."""
        found = [
            WantedConstraint("guided_regex", "regex", self.guided_regex),
            WantedConstraint("guided_json", "json_schema", self.guided_json, options=self.options()),
            WantedConstraint("guided_choice", "choice", self.guided_choice),
            WantedConstraint("guided_grammar", "grammar", self.guided_grammar, syntax=self.grammar_syntax),
            WantedConstraint("structural_tag", "structural_tag", self.structural_tag, options=self.options()),
            WantedConstraint("controller", "controller", self.controller, argument=self.controller_arg),
        ]
        return [each for each in found if each.value is not None]

    def asked(self) -> list[str]:
        """Return the names of the constraint fields that the request has."""
        return [each.field for each in self.wanted()]


@dataclass(frozen=True, slots=True)
class WantedConstraint:
    """A constraint of a request. `field`: its name in the request. `value`: a pattern, a schema or a structural tag
    (JSON, or its text), a list of texts, a grammar or a controller's name. `options`: of a schema."""

    field: str
    kind: Literal["regex", "json_schema", "choice", "grammar", "structural_tag", "controller"]
    value: Any
    options: SchemaOptions = SPACED
    syntax: GrammarSyntax | None = None
    argument: Any = None

    @property
    def document(self) -> str:
        """The JSON Schema or the structural tag as JSON text."""
        return self.value if isinstance(self.value, str) else json.dumps(self.value)


def wanted_constraint(fields: ConstraintFields) -> WantedConstraint | None:
    """Return the constraint of a request; None without a constraint. One constraint may have several names, as
    guidance's client for vLLM sends it. Raises UsageError for two constraints."""
    wanted = fields.wanted()
    others = [each.field for each in wanted if replace(each, field=wanted[0].field) != wanted[0]]
    if others:
        one, other = wanted[0].field, others[0]
        raise UsageError(f"{one} and {other} together", hint="a request has one constraint: leave one out", param=other)
    if fields.controller_arg is not None and fields.controller is None:
        raise UsageError("controller_arg without a controller", hint="name it in `controller`", param="controller_arg")
    if fields.grammar_syntax is not None and all(each.kind != "grammar" for each in wanted):
        hint = "give the grammar in `guided_grammar`"
        raise UsageError("grammar_syntax without a grammar", hint=hint, param="grammar_syntax")
    return wanted[0] if wanted else None


async def controller_call(
    service: ChecksConstraints, principal: Principal, fields: ConstraintFields
) -> CheckedCall | None:
    """Return the controller call of a request's constraint; None without a constraint.

    Raises UsageError for an invalid field, ForbiddenError if the key may not use the controller.
    """
    wanted = wanted_constraint(fields)
    return None if wanted is None else await call_of(service, principal, wanted)


async def call_of(service: ChecksConstraints, principal: Principal, wanted: WantedConstraint) -> CheckedCall:
    """Return the controller call of a constraint. Raises as `controller_call`."""
    constraints = service.constraints.of(principal)
    with about(wanted.field):
        match wanted.kind:
            case "regex":
                return await constraints.regex(wanted.value)
            case "json_schema":
                return await constraints.json_schema(wanted.document, wanted.options)
            case "choice":
                return await constraints.choices(wanted.value)
            case "grammar":
                return await constraints.grammar(wanted.value, wanted.syntax)
            case "structural_tag":
                return await constraints.structural_tag(wanted.document, wanted.options)
            case "controller":
                argument = "" if wanted.argument is None else wanted.argument
                return await constraints.controller(wanted.value, argument)


class AnswerConstraint(NamedTuple):
    """Two fields of a TurnRequest."""

    controller: CheckedCall | None = None
    document: CheckedCall | None = None


async def answer_constraint(
    service: ChecksConstraints,
    principal: Principal,
    fields: ConstraintFields,
    choice: ToolChoice,
    syntax: ToolSyntax,
) -> AnswerConstraint:
    """Return the constraint of a request as fields of a TurnRequest. `syntax`: how calls are written.

    Where the model may call a tool, only a JSON Schema is possible: the answer is a document, or calls. Where the model
    must call a tool, there is no text, and the schema is checked only. Raises UsageError for any other constraint.
    """
    wanted = wanted_constraint(fields)
    if wanted is None:
        return AnswerConstraint()
    if choice == "none":
        return AnswerConstraint(controller=await call_of(service, principal, wanted))
    name = wanted.field
    if wanted.kind != "json_schema":
        hint = f"leave out {name} or tools, or set tool_choice to none"
        raise UsageError(f"{name} and tools together", hint=hint, param=name)
    with about(name):
        call = await service.constraints.of(principal).json_schema_or(wanted.document, syntax.mark, wanted.options)
    return AnswerConstraint(document=call if choice == "auto" else None)
