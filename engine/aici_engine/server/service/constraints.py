"""Turns a constraint of a request into a ControllerCall, and checks it before the engine sees the request.

The guest parses its argument again: the guest is the parser, runs in another process, and takes arguments from clients
of the runtime that check nothing. Without the check here, an invalid pattern would cost an instance and fail late. Both
parse once per argument: the last 256 checks are kept here, and the runtime forks further guests from a template.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from aici_base.errors import UsageError
from aici_controllers import constraints
from aici_controllers.catalog import SCRIPT_GUESTS, guest_names, guest_path
from aici_controllers.constraints import Constraint
from aici_controllers.notations.tree import GrammarSyntax
from aici_controllers.schema_check import SchemaOptions
from aici_engine.request import ControllerCall
from aici_engine.server.service.admission import Principal
from aici_runtime.modules.tags import is_module_id, is_tag

_KEPT_CHECKS = 256
_UPSTREAM_NAMES = {f"gh:microsoft/aici/{guest}": guest for guest in SCRIPT_GUESTS.values()}
"""What upstream AICI's command line sends if it is given a script. The server fetches nothing: the guests ship."""
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class CheckedCall(ControllerCall):
    """A call with a checked argument. `warnings`: parts of a schema that are not enforced, for the client."""

    warnings: tuple[str, ...] = ()


class Constraints:
    """Checks constraints in threads, two at a time, because a check may take long. Caches the last 256 valid ones."""

    def __init__(self, fixed: Mapping[str, str]) -> None:
        """`fixed`: name → module id of the controllers that the server starts with."""
        self._fixed = fixed
        self._known: dict[tuple[object, ...], CheckedCall] = {}
        self._turns = asyncio.Semaphore(2)

    async def regex(self, pattern: str) -> CheckedCall:
        return await self._call(("regex", pattern), lambda: constraints.regex(pattern))

    async def grammar(self, text: str, syntax: GrammarSyntax | None = None) -> CheckedCall:
        return await self._call(("grammar", text, syntax), lambda: constraints.grammar(text, syntax=syntax))

    async def json_schema(self, schema: str, options: SchemaOptions = constraints.SPACED) -> CheckedCall:
        """`schema`: JSON text."""
        return await self._call(("json_schema", schema, options), lambda: constraints.json_schema(schema, options))

    async def json_schema_or(self, schema: str, text: str, options: SchemaOptions = constraints.SPACED) -> CheckedCall:
        """`schema`: JSON text. The answer is a document, or `text`."""
        key = ("json_schema_or", schema, text, options)
        return await self._call(key, lambda: constraints.json_schema_or(schema, text, options))

    async def structural_tag(self, document: str, options: SchemaOptions = constraints.SPACED) -> CheckedCall:
        """`document`: JSON text."""
        key = ("structural_tag", document, options)
        return await self._call(key, lambda: constraints.structural_tag(document, options))

    async def quoted(self, text: str, syntax: Literal["lark", "regex"]) -> CheckedCall:
        """The answer is a text of the grammar or pattern, and a double quote."""
        return await self._call(("quoted", syntax, text), lambda: constraints.quoted(text, syntax))

    async def choices(self, texts: list[str]) -> CheckedCall:
        return await self._call(("choices", *texts), lambda: constraints.choices(texts))

    async def substring(self, text: str) -> CheckedCall:
        return await self._call(("substring", text), lambda: constraints.substring(text))

    async def controller(self, principal: Principal, name: str, argument: object) -> CheckedCall:
        """Return the call of a controller by module id, tag or shipped name; `structural_tag` is a name, too.

        The argument of a shipped controller is checked. Raises UsageError for an invalid name, ForbiddenError if
        `principal` may not use the controller.
        """
        name = _UPSTREAM_NAMES.get(name, name)
        if not (is_module_id(name) or is_tag(name)):
            shown = name if len(name) <= _SHOWN_CHARS else f"{name[:_SHOWN_CHARS]}..."
            raise UsageError(f"'controller' must be a 64-char hex string or tag name, got {shown}.", param="controller")
        principal.check_controller(constraints.TRANSLATED.get(name, name))
        text = argument if isinstance(argument, str) else _json(argument)
        if name not in guest_names() and name not in constraints.TRANSLATED:
            # A fixed name wins over a tag of the same name.
            return CheckedCall(self._fixed.get(name, name), text)
        return await self._call((name, "argument", text), lambda: constraints.named(name, text))

    async def _call(self, key: tuple[object, ...], check: Callable[[], Constraint]) -> CheckedCall:
        if (known := self._known.get(key)) is not None:
            return known
        async with self._turns:
            constraint = await asyncio.to_thread(check)
        call = CheckedCall(module_id(constraint.guest), constraint.argument, constraint.warnings)
        if len(self._known) >= _KEPT_CHECKS:
            del self._known[next(iter(self._known))]
        self._known[key] = call
        return call


def _json(argument: object) -> str:
    try:
        return json.dumps(argument, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"controller_arg is not valid JSON: {error}", param="controller_arg") from error


@lru_cache
def module_id(guest: str) -> str:
    """Return the module id of a shipped controller: the sha256 of its bytes. A tag cannot replace a module id."""
    return hashlib.sha256(guest_path(guest).read_bytes()).hexdigest()
