"""Turns a constraint of a request into a ControllerCall, and checks it before the engine sees the request.

The guest parses its argument again: the guest is the parser, runs in another process, and takes arguments from clients
of the runtime that check nothing. Without the check here, an invalid pattern would cost an instance and fail late. Both
parse once per argument: the last checks are remembered here, and the runtime forks further guests from a template.

A check is bounded (`aici_controllers.check_cost`), API keys check in turn, and failures are remembered too: so no key
makes the checks of another wait for long, and a costly constraint costs once. The checks of a request share a bound,
since a request may have many tools.
"""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal
from weakref import WeakValueDictionary

from aici_base.errors import AiciError, ControllerError, UsageError
from aici_controllers import constraints
from aici_controllers.catalog import SCRIPT_GUESTS, guest_names, guest_path
from aici_controllers.check_cost import CostlyRequestError, RequestTank
from aici_controllers.constraints import Constraint
from aici_controllers.notations.tree import GrammarSyntax
from aici_controllers.schema_check import SchemaOptions
from aici_controllers.source_check import Language, SourceProblem, check_source
from aici_controllers.store import Store
from aici_engine.request import ControllerCall
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.turns import Turns
from aici_runtime.modules.tags import is_module_id, is_tag

_TURNS: Final = 3
_TURNS_PER_KEY: Final = 2
_KEPT_CHECKS: Final = 1024
_KEPT_CHARS: Final = 16 << 20
_SHORT_TEXT: Final = 64 << 10
_UPSTREAM_NAMES = {f"gh:microsoft/aici/{guest}": guest for guest in SCRIPT_GUESTS.values()}
"""What upstream AICI's command line sends if it is given a script. The server fetches nothing: the guests ship."""
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class CheckedCall(ControllerCall):
    """A call with a checked argument. `warnings`: parts of a schema that are not enforced, for the client."""

    warnings: tuple[str, ...] = ()


class Constraints:
    """Checks constraints in threads: three at a time, two of one key, and the keys in turn.

    Remembers the results of the last 1,024 different checks, as long as they have at most 16 M characters together. A
    check depends neither on the vocabulary nor on the key.
    """

    def __init__(self, store: Store) -> None:
        """`store`: the controllers of the server."""
        self.store = store
        self._turns = Turns(_TURNS, most_per_key=_TURNS_PER_KEY)
        self._known: OrderedDict[bytes, CheckedCall | AiciError] = OrderedDict()
        self._known_chars = 0
        self._locks = WeakValueDictionary[bytes, asyncio.Lock]()

    def of(self, principal: Principal) -> "KeyConstraints":
        """Return a key's view of the constraints, for the checks of one request."""
        return KeyConstraints(self, principal)

    async def check(
        self,
        owner: str,
        tank: RequestTank,
        kind: str,
        text: str | list[str],
        options: object,
        check: Callable[[], Constraint],
    ) -> CheckedCall:
        """Return the result of `check`, which depends on `kind`, `text` and `options` alone, or the remembered one.

        `owner`: the name of the key that asks. `tank`: of the request. A remembered failure is raised again.
        """
        is_short = isinstance(text, str) and len(text) <= _SHORT_TEXT
        key = _digest(kind, text, options) if is_short else await asyncio.to_thread(_digest, kind, text, options)
        if key not in self._known:
            async with self._locks.setdefault(key, asyncio.Lock()):
                if key not in self._known:  # else another request has checked it meanwhile
                    self._remember(key, await self._turns.in_thread(owner, lambda: _outcome(check, tank)))
        self._known.move_to_end(key)
        known = self._known[key]
        if isinstance(known, AiciError):
            raise known.with_message(known.message)
        return known

    async def problems(self, owner: str, tank: RequestTank, language: Language, text: str) -> list[SourceProblem]:
        """Return what is wrong with a text. `owner` and `tank`: as in `check`."""

        def check() -> list[SourceProblem]:
            with tank.check():
                return check_source(language, text)

        return await self._turns.in_thread(owner, check)

    def _remember(self, key: bytes, outcome: "CheckedCall | AiciError") -> None:
        self._known[key] = outcome
        self._known_chars += _num_chars(outcome)
        while len(self._known) > 1 and (len(self._known) > _KEPT_CHECKS or self._known_chars > _KEPT_CHARS):
            _, oldest = self._known.popitem(last=False)
            self._known_chars -= _num_chars(oldest)


@dataclass(frozen=True, slots=True)
class KeyConstraints:
    """Checks the constraints of one API key. Every method raises UsageError for an invalid or too costly constraint."""

    _all: Constraints
    _principal: Principal
    _tank: RequestTank = field(default_factory=RequestTank)

    async def regex(self, pattern: str) -> CheckedCall:
        return await self._check("regex", pattern, None, lambda: constraints.regex(pattern))

    async def grammar(self, text: str, syntax: GrammarSyntax | None = None) -> CheckedCall:
        return await self._check("grammar", text, syntax, lambda: constraints.grammar(text, syntax=syntax))

    async def json_schema(self, schema: str, options: SchemaOptions = constraints.SPACED) -> CheckedCall:
        """`schema`: JSON text."""
        return await self._check("json_schema", schema, options, lambda: constraints.json_schema(schema, options))

    async def json_schema_or(self, schema: str, text: str, options: SchemaOptions = constraints.SPACED) -> CheckedCall:
        """`schema`: JSON text. The answer is a document, or `text`."""
        return await self._check(
            "json_schema_or", schema, (text, options), lambda: constraints.json_schema_or(schema, text, options)
        )

    async def structural_tag(self, document: str, options: SchemaOptions = constraints.SPACED) -> CheckedCall:
        """`document`: JSON text."""
        return await self._check(
            "structural_tag", document, options, lambda: constraints.structural_tag(document, options)
        )

    async def quoted(self, text: str, syntax: Literal["lark", "regex"]) -> CheckedCall:
        """The answer is a text of the grammar or pattern, and a double quote."""
        return await self._check("quoted", text, syntax, lambda: constraints.quoted(text, syntax))

    async def choices(self, texts: list[str]) -> CheckedCall:
        return await self._check("choices", texts, None, lambda: constraints.choices(texts))

    async def problems(self, language: Language, text: str) -> list[SourceProblem]:
        """Return what is wrong with a user's text in `language`. The result is not remembered."""
        return await self._all.problems(self._principal.name, self._tank, language, text)

    async def controller(self, name: str, argument: object) -> CheckedCall:
        """Return the call of a controller by module id, tag or shipped name; `structural_tag` is a name, too.

        The argument of a shipped controller is checked. Raises UsageError for an invalid name, ForbiddenError if the
        key may not use the controller, NotFoundError if the controller belongs to another key.
        """
        name = _UPSTREAM_NAMES.get(name, name)
        if not (is_module_id(name) or is_tag(name)):
            shown = name if len(name) <= _SHOWN_CHARS else f"{name[:_SHOWN_CHARS]}..."
            raise UsageError(f"'controller' must be a 64-char hex string or tag name, got {shown}.", param="controller")
        self._principal.check_controller(constraints.TRANSLATED.get(name, name))
        text = argument if isinstance(argument, str) else _json(argument)
        if name not in guest_names() and name not in constraints.TRANSLATED:
            return CheckedCall(await self._found(name), text)
        return await self._check("controller", text, name, lambda: constraints.named(name, text))

    async def _found(self, name: str) -> str:
        """Return the module id, or the tag. Raise NotFoundError for a module that the key does not see."""
        fixed = self._all.store.fixed
        # A fixed name wins over a tag of the same name.
        if name in fixed or self._principal.is_admin:
            return fixed.get(name, name)
        return await asyncio.to_thread(self._all.store.resolve, name, self._principal.auth)

    async def _check(
        self, kind: str, text: str | list[str], options: object, check: Callable[[], Constraint]
    ) -> CheckedCall:
        return await self._all.check(self._principal.name, self._tank, kind, text, options, check)


def _outcome(check: Callable[[], Constraint], tank: RequestTank) -> CheckedCall | AiciError:
    """Run a check. Failures that come again with the same constraint are returned, all others are raised."""
    try:
        with tank.check():
            constraint = check()
    except CostlyRequestError:
        raise  # another request may have room for this check
    except (UsageError, ControllerError) as error:
        return error.with_message(error.message)  # the copy holds no traceback
    return CheckedCall(module_id(constraint.guest), constraint.argument, constraint.warnings)


def _digest(kind: str, text: str | list[str], options: object) -> bytes:
    whole = text if isinstance(text, str) else json.dumps(text)
    return hashlib.sha256(f"{kind} {options!r} {whole}".encode(errors="surrogatepass")).digest()


def _num_chars(outcome: CheckedCall | AiciError) -> int:
    if isinstance(outcome, AiciError):
        return len(outcome.message) + len(outcome.hint)
    return len(outcome.argument if isinstance(outcome.argument, str) else "") + sum(map(len, outcome.warnings))


def _json(argument: object) -> str:
    try:
        return json.dumps(argument, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"controller_arg is not valid JSON: {error}", param="controller_arg") from error


@lru_cache
def module_id(guest: str) -> str:
    """Return the module id of a shipped controller: the sha256 of its bytes. A tag cannot replace a module id."""
    return hashlib.sha256(guest_path(guest).read_bytes()).hexdigest()
