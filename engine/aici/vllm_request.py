"""The constraint of a request to vLLM: the value of `aici` among the request's extra arguments."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from aici import constraints
from aici.constraints import Constraint
from aici.errors import UsageError, shown_type

NAME: Final = "aici"
_HINT: Final = (
    'give one of regex, json_schema, grammar, choice, substring, structural_tag, controller: {"regex": "[0-9]+"}'
)
_REFUSED: Final = (
    "ignore_eos",
    "min_tokens",
    "allowed_token_ids",
    "bad_words",
    "structured_outputs",
    "thinking_token_budget",
)
"""Sampling parameters of vLLM that take tokens from a mask, or go on after the end of a controller."""


def constraint_of(extra_args: Mapping[str, Any] | None) -> Constraint[Any] | None:
    """Return the constraint of a request, None for a request without `aici`.

    The value is an object, or its JSON text: vLLM's HTTP server takes texts and numbers alone as extra arguments.
    Raises UsageError for a wrong value.
    """
    value = (extra_args or {}).get(NAME)
    if value is None:
        return None
    if isinstance(value, Mapping):
        value = json.dumps(value)
    if not isinstance(value, str):
        raise UsageError(f"aici is an object or its JSON text, not {shown_type(value)}", hint=_HINT, param=NAME)
    return _parsed(value)


def check_sampling(params: Any) -> None:
    """Raise UsageError if sampling parameters of vLLM do not go with a controller."""
    for name in _REFUSED:
        if getattr(params, name, None):
            raise UsageError(f"{name} does not go with a controller", hint=f"leave out {name} or aici", param=name)


@lru_cache(256)
def _parsed(text: str) -> Constraint[Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"aici is not JSON: {error}", hint=_HINT, param=NAME) from None
    if not isinstance(value, dict):
        raise UsageError(f"aici is {shown_type(value)}, not an object", hint=_HINT, param=NAME)
    kinds = [kind for kind in _KINDS if kind in value]
    if len(kinds) != 1:
        raise UsageError(f"aici has {len(kinds)} constraints, not one", hint=_HINT, param=NAME)
    read, others = _KINDS[kinds[0]]
    if unknown := value.keys() - {kinds[0], *others}:
        raise UsageError(f"aici has an unknown field {sorted(unknown)[0]}", hint=_HINT, param=NAME)
    return read(value)


def _regex(value: dict[str, Any]) -> Constraint[Any]:
    return constraints.regex(value["regex"])


def _schema(value: dict[str, Any]) -> Constraint[Any]:
    options = value.get("schema_options", {})
    if not isinstance(options, dict):
        raise UsageError("schema_options is not an object", hint='{"whitespace": "compact"}', param=NAME)
    return constraints.json_schema(value["json_schema"], **options)


def _grammar(value: dict[str, Any]) -> Constraint[Any]:
    # With a name, a grammar is always the text: a request names no files.
    if not isinstance(value["grammar"], str):
        raise UsageError("the grammar is not a text", hint=_HINT, param=NAME)
    return constraints.grammar(value["grammar"], name="grammar", syntax=value.get("grammar_syntax"))


def _choice(value: dict[str, Any]) -> Constraint[Any]:
    if not isinstance(value["choice"], list):
        raise UsageError("choice is not a list of texts", hint='{"choice": ["yes", "no"]}', param=NAME)
    return constraints.choice(*value["choice"])


def _substring(value: dict[str, Any]) -> Constraint[Any]:
    return constraints.substring(value["substring"], end=value.get("end", ""))


def _structural_tag(value: dict[str, Any]) -> Constraint[Any]:
    return constraints.structural_tag(value["structural_tag"])


def _controller(value: dict[str, Any]) -> Constraint[Any]:
    """A request names a shipped or an uploaded module: a path would read a file of the server."""
    module, argument = value["controller"], value.get("controller_arg", "")
    if not isinstance(module, str) or "/" in module or module.endswith(".wasm"):
        raise UsageError(
            "controller is not the name, tag or id of a module", hint="upload it: aici ctrl upload", param=NAME
        )
    return constraints.controller(module, argument)


_KINDS: Final[Mapping[str, tuple[Callable[[dict[str, Any]], Constraint[Any]], tuple[str, ...]]]] = {
    "regex": (_regex, ()),
    "json_schema": (_schema, ("schema_options",)),
    "grammar": (_grammar, ("grammar_syntax",)),
    "choice": (_choice, ()),
    "substring": (_substring, ("end",)),
    "structural_tag": (_structural_tag, ()),
    "controller": (_controller, ("controller_arg",)),
}
