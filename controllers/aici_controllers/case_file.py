"""The cases of `aici ctrl test`: a TOML file, described in `controllers/README.md`. Unknown or contradictory keys
are refused."""

import difflib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from aici_base.errors import NotFoundError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The keys of a step: the expected behaviour of the controller first, then the sampled token."""

    fork: int = 0
    suspended: bool = False
    holds: bool = False
    forks: int = 1
    backtrack: int = 0
    forced: str = ""
    allowed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    exactly: tuple[str, ...] | None = None
    end: bool | None = None
    sample: str = ""
    sample_tokens: tuple[int, ...] = ()
    sample_end: bool = False
    stop: bool = False
    error: str = ""
    log: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case. `error`: the expected message if the guest must fail to start."""

    name: str
    argument: str
    prompt: str
    error: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A case file. `tokens`: the tokens of the built-in tokenizer beyond single bytes."""

    tokens: tuple[str, ...]
    cases: tuple[Case, ...]


_KINDS: Final = {str: "a string", int: "a whole number", bool: "true or false", list: "an array", dict: "a table"}
_FILE: Final[Mapping[str, type]] = {"tokens": list, "case": list}
_CASE: Final[Mapping[str, type]] = {
    "name": str,
    "argument": object,
    "argument_file": str,
    "prompt": str,
    "error": str,
    "steps": list,
}
_STEP: Final[Mapping[str, type]] = {
    **dict.fromkeys(("fork", "forks", "backtrack"), int),
    **dict.fromkeys(("suspended", "holds", "end", "sample_end", "stop"), bool),
    **dict.fromkeys(("forced", "sample", "error"), str),
    **dict.fromkeys(("allowed", "refused", "exactly", "log", "sample_tokens"), list),
    "variables": dict,
}
assert set(_STEP) == {each.name for each in fields(Step)}
_MAX_FILE_BYTES: Final = 4 << 20
_LEAST: Final = {"fork": 0, "forks": 1, "backtrack": 0}
_NEVER_EMPTY: Final = ("sample", "sample_tokens", "error")


def read_cases(path: Path) -> CaseFile:
    """Read a case file. Raise NotFoundError, or UsageError with the case and the step."""
    try:
        document = tomllib.loads(_bounded(path).decode("utf-8-sig"))
    except OSError as error:
        raise NotFoundError(f"the cases cannot be read: {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    _check(document, _FILE, str(path))
    cases = document.get("case", [])
    if not cases:
        raise UsageError(f"{path} holds no [[case]]")
    tokens = _strings(document.get("tokens", []), f"{path}: tokens")
    if not all(tokens):
        raise UsageError(f"{path}: tokens: an empty text cannot be a token")
    return CaseFile(tokens, tuple(_case(each, f"{path}, case {n}", path.parent) for n, each in enumerate(cases, 1)))


def _case(table: Any, where: str, folder: Path) -> Case:
    _check(table, _CASE, where)
    name = table.get("name", where.rpartition(", ")[2])
    steps = table.get("steps", [])
    if table.get("error") == "":
        raise UsageError(f"{where}: error is empty", hint="remove the key")
    if "error" in table and steps:
        raise UsageError(f"{where}: error says that the guest does not start, so there are no steps")
    return Case(
        name=name,
        argument=_argument(table, where, folder),
        prompt=table.get("prompt", ""),
        error=table.get("error", ""),
        steps=tuple(_step(each, f"{where}, step {n}") for n, each in enumerate(steps, 1)),
    )


def _argument(table: Mapping[str, Any], where: str, folder: Path) -> str:
    """Return the module argument: a string unchanged, any other value as JSON, or the exact content of a file."""
    if "argument_file" not in table:
        argument = table.get("argument", "")
        try:
            return argument if isinstance(argument, str) else json.dumps(argument, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{where}: argument cannot be written as JSON: {error}") from error
    if "argument" in table:
        raise UsageError(f"{where}: argument and argument_file exclude each other")
    path = folder / str(table["argument_file"])
    try:
        return _bounded(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{where}: {path} cannot be read: {error}") from error


def _bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise UsageError(f"{path} is larger than {_MAX_FILE_BYTES >> 20} MiB")
    return content


def _step(table: Any, where: str) -> Step:
    _check(table, _STEP, where)
    values = dict(table)
    for name in ("allowed", "refused", "exactly", "log"):
        if name in values:
            values[name] = _strings(values[name], f"{where}: {name}")
            if "" in values[name]:
                raise UsageError(f"{where}: {name}: an empty text says nothing")
    for name in _NEVER_EMPTY:
        if name in values and not values[name]:
            raise UsageError(f"{where}: {name} is empty", hint="remove the key")
    for name, least in _LEAST.items():
        if values.get(name, least) < least:
            raise UsageError(f"{where}: {name} is less than {least}")
    if "sample_tokens" in values:
        values["sample_tokens"] = tuple(values["sample_tokens"])
        if not all(type(token) is int and token >= 0 for token in values["sample_tokens"]):
            raise UsageError(f"{where}: sample_tokens must hold token ids only")
    _strings(list(values.get("variables", {}).values()), f"{where}: variables")
    if sum(name in values for name in ("sample", "sample_tokens", "sample_end")) > 1:
        raise UsageError(f"{where}: sample, sample_tokens and sample_end exclude each other")
    return Step(**values)


def _check(table: Any, keys: Mapping[str, type], where: str) -> None:
    if not isinstance(table, dict):
        raise UsageError(f"{where} is not a table")
    for key, value in table.items():
        if key not in keys:
            near = difflib.get_close_matches(key, keys, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(keys)}"
            raise UsageError(f"{where}: {key} is not known", hint=hint)
        if keys[key] is not object and type(value) is not keys[key]:
            raise UsageError(f"{where}: {key} is not {_KINDS[keys[key]]}")


def _strings(values: list[Any], where: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise UsageError(f"{where} must hold strings only")
    return tuple(values)
