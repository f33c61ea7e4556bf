"""The constraint fields that this server adds to the OpenAI, Anthropic and LMTP protocols."""

import json
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field

from aici_base.errors import UsageError
from aici_controllers.constraints import SPACED
from aici_controllers.notations.tree import GrammarSyntax
from aici_controllers.schema_check import SchemaOptions
from aici_engine.server.errors import about
from aici_engine.server.protocols.schema_fields import SchemaFields
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.constraints import CheckedCall
from aici_engine.server.service.service import Service

_NAMES = ("guided_regex", "guided_json", "guided_choice", "guided_grammar", "controller")


class ConstraintFields(BaseModel):
    """A request has at most one of these constraints.

    `guided_grammar`: a grammar's text in Lark, GBNF or yacc's notation; `grammar_syntax` says which, if need be.

    `schema_options`: how the schemas of the request are read, also those of tools and of the response's format.
    """

    guided_regex: str | None = None
    guided_json: str | dict[str, Any] | bool | None = None
    guided_choice: Annotated[list[str], Field(min_length=1)] | None = None
    guided_grammar: str | None = None
    grammar_syntax: GrammarSyntax | None = None
    controller: str | None = None
    controller_arg: Any = None
    schema_options: SchemaFields | None = None

    def options(self, *, strict: bool = False) -> SchemaOptions:
        """Return how a schema of the request is read. `strict`: as the protocol's `strict`, which closes objects."""
        options = SPACED if self.schema_options is None else self.schema_options.options()
        return replace(options, objects="closed") if strict else options

    def asked(self) -> list[str]:
        """Return the names of the constraint fields that the request has."""
        return [name for name in _NAMES if getattr(self, name) is not None]


async def controller_call(service: Service, principal: Principal, fields: ConstraintFields) -> CheckedCall | None:
    """Return the controller call of a request's constraint; None without a constraint.

    Raises UsageError for an invalid field, ForbiddenError if the key may not use the controller.
    """
    asked = fields.asked()
    if len(asked) > 1:
        raise UsageError(
            f"{asked[0]} and {asked[1]} together", hint="a request has one constraint: leave one out", param=asked[1]
        )
    if fields.controller_arg is not None and fields.controller is None:
        raise UsageError("controller_arg without a controller", hint="name it in `controller`", param="controller_arg")
    if fields.grammar_syntax is not None and fields.guided_grammar is None:
        hint = "give the grammar in `guided_grammar`"
        raise UsageError("grammar_syntax without a grammar", hint=hint, param="grammar_syntax")
    if not asked:
        return None
    with about(asked[0]):
        return await _call(service, principal, fields)


async def _call(service: Service, principal: Principal, fields: ConstraintFields) -> CheckedCall:
    constraints = service.constraints
    if fields.guided_regex is not None:
        return await constraints.regex(fields.guided_regex)
    if fields.guided_json is not None:
        schema = fields.guided_json
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return await constraints.json_schema(text, fields.options())
    if fields.guided_choice is not None:
        return await constraints.choices(fields.guided_choice)
    if fields.guided_grammar is not None:
        return await constraints.grammar(fields.guided_grammar, fields.grammar_syntax)
    assert fields.controller is not None
    argument = "" if fields.controller_arg is None else fields.controller_arg
    return await constraints.controller(principal, fields.controller, argument)
