"""The values that an option or an argument of a command takes, for shells that complete them."""

import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from aici_controllers.catalog import SHIPPED, grammar_names
from aici_engine.config import Dtype, KVCacheDtype


@dataclass(frozen=True, slots=True)
class Values:
    """Fixed `words`, names of `models` in the cache, `tags` in the store of controllers, and names of `files`."""

    words: tuple[str, ...] = ()
    models: bool = False
    tags: bool = False
    files: bool = False


TEXT: Final = Values()
"""Nothing that a shell could know."""
FILES: Final = Values(files=True)
_MODELS: Final = Values(models=True, files=True)
_TAGS: Final = Values(tags=True)
_GRAMMARS: Final = Values(words=tuple(grammar_names()), files=True)
_BY_NAME: Final[Mapping[str, Values]] = {
    "--model": _MODELS,
    "--tokenizer": _MODELS,
    "--driver": TEXT,
    "--tag": _TAGS,
    "--grammar": _GRAMMARS,
    "--controller": Values(words=tuple(sorted(SHIPPED)), tags=True, files=True),
    "--dtype": Values(words=get_args(Dtype)),
    "--kv-cache-dtype": Values(words=get_args(KVCacheDtype)),
    "--json-schema": FILES,
    "--structural-tag": FILES,
    "--controller-arg": FILES,
    "--log-level": Values(words=("DEBUG", "INFO", "WARNING", "ERROR")),
    "--log-format": Values(words=("json", "text")),
    "MODEL": _MODELS,
    "model": _MODELS,
    "ID|TAG": _TAGS,
    "ID|TAG...": _TAGS,
    "TAG...": _TAGS,
    "controller": Values(words=tuple(sorted(SHIPPED)), tags=True),
    "FILE": _GRAMMARS,
    "HOST:PORT": TEXT,
    "server": TEXT,
}
"""By option, and by metavar or name of an argument."""
_ON_SERVER: Final = {("aici lmtp", "--model"), ("aici bench serve", "--model")}
"""These name a model of a server."""


def values_of(command: str, parameter: Any) -> Values | None:
    """Return the values of a parameter of Typer. None: an option that takes no value."""
    is_option = parameter.param_type_name == "option"
    if is_option and (parameter.is_flag or parameter.count):
        return None
    name = parameter.opts[0] if is_option else (parameter.metavar or parameter.name).strip("[]")
    if (command, name) in _ON_SERVER:
        return TEXT
    if words := _words(parameter.type_descriptor.annotation):
        return Values(words=words)
    if name in _BY_NAME:
        return _BY_NAME[name]
    return FILES if not is_option or Path in _members(parameter.type_descriptor.annotation) else TEXT


def takes_path(option: Any) -> bool:
    """Whether the value of an option of Typer is a path."""
    return Path in _members(option.type_descriptor.annotation)


def _words(annotation: Any) -> tuple[str, ...]:
    """Return the values of a closed set."""
    for member in _members(annotation):
        if get_origin(member) is Literal:
            return tuple(get_args(member))
        if isinstance(member, type) and issubclass(member, StrEnum):
            return tuple(member)
    return ()


def _members(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a union, or of the items of a list."""
    if get_origin(annotation) in (Union, types.UnionType, list):
        return tuple(inner for each in get_args(annotation) for inner in _members(each))
    return (annotation,)
