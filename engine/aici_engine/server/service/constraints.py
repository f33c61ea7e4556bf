"""What a request may ask of the text, as a controller and its argument. Checked here, before the engine hears of it."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache

from aici_base.errors import UsageError
from aici_controllers import constraints
from aici_controllers.catalog import guest_names, guest_path
from aici_controllers.constraints import Constraint
from aici_engine.request import ControllerCall
from aici_engine.server.errors import ParameterError
from aici_engine.server.service.admission import Principal
from aici_runtime.modules.tags import is_module_id, is_tag

_KEPT_CHECKS = 256
_SHOWN_CHARS = 80


class Constraints:
    """Checks run in threads, a few at a time: they may take long. What passed is remembered."""

    def __init__(self, fixed: Mapping[str, str]) -> None:
        """`fixed`: name → module id of the controllers that are there from the start."""
        self._fixed = fixed
        self._known: dict[tuple[object, ...], ControllerCall] = {}
        self._turns = asyncio.Semaphore(2)

    async def regex(self, pattern: str) -> ControllerCall:
        return await self._call(("regex", pattern), lambda: constraints.regex(pattern))

    async def grammar(self, text: str) -> ControllerCall:
        return await self._call(("grammar", text), lambda: constraints.grammar(text))

    async def json_schema(self, schema: str, *, lenient: bool = False) -> ControllerCall:
        """`schema`: JSON text."""
        return await self._call(
            ("json_schema", schema, lenient), lambda: constraints.json_schema(schema, lenient=lenient)
        )

    async def choices(self, texts: list[str]) -> ControllerCall:
        return await self._call(("choices", *texts), lambda: constraints.choices(texts))

    async def substring(self, text: str) -> ControllerCall:
        return await self._call(("substring", text), lambda: constraints.substring(text))

    async def controller(self, who: Principal, name: str, argument: object) -> ControllerCall:
        """By module id, tag, or the name of one that ships: of that one the argument is checked.

        ParameterError for what can be no name, ForbiddenError for what `who` may not use.
        """
        if not (is_module_id(name) or is_tag(name)):
            shown = name if len(name) <= _SHOWN_CHARS else f"{name[:_SHOWN_CHARS]}..."
            raise ParameterError("controller", f"'controller' must be a 64-char hex string or tag name, got {shown}.")
        who.check_controller(name)
        text = argument if isinstance(argument, str) else _json(argument)
        if name not in guest_names():
            # No tag can stand in the place of a name that is fixed.
            return ControllerCall(self._fixed.get(name, name), text)
        return await self._call((name, "argument", text), lambda: constraints.named(name, text))

    async def _call(self, key: tuple[object, ...], check: Callable[[], Constraint]) -> ControllerCall:
        if (known := self._known.get(key)) is not None:
            return known
        async with self._turns:
            try:
                constraint = await asyncio.to_thread(check)
            except UsageError as error:
                # A hint that names a flag is the command line's.
                raise UsageError(error.message, hint="" if "--" in error.hint else error.hint) from error
        call = ControllerCall(module_id(constraint.guest), constraint.argument)
        if len(self._known) >= _KEPT_CHECKS:
            del self._known[next(iter(self._known))]
        self._known[key] = call
        return call


def _json(argument: object) -> str:
    try:
        return json.dumps(argument, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError) as error:
        raise ParameterError("controller_arg", f"controller_arg is not JSON: {error}") from error


@lru_cache
def module_id(guest: str) -> str:
    """Of a controller that ships: the sha256 of its bytes, so that no tag can stand in its place."""
    return hashlib.sha256(guest_path(guest).read_bytes()).hexdigest()
