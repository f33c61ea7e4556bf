"""Carry out `%import`: what a Lark file takes from the module `common`, and from the files beside it."""

import difflib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from aici_controllers.notations.lark_common import COMMON
from aici_controllers.notations.lark_file import Definition, Import, Statement
from aici_controllers.notations.lark_reader import LarkReader
from aici_controllers.notations.tree import (
    Chars,
    ExactText,
    Json,
    Lexeme,
    Look,
    Node,
    NotationError,
    Place,
    Ref,
    mapped,
)

Load: TypeAlias = Callable[[str], str | None]
"""Returns the text of another Lark file, by its path in Lark's form such as `.names`; None if there is none."""


def no_files(_: str) -> str | None:
    """The Load of a text without a file."""
    return None


@lru_cache
def _common() -> tuple[Statement, ...]:
    return tuple(LarkReader(COMMON).read())


class Imports:
    """The modules of a grammar. Each definition gets one name, however often it is imported."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._modules: dict[str, dict[str, Definition]] = {}

    def definitions(self, one: Import, done: set[str]) -> Iterator[Definition]:
        """Yield what an import defines: its names, and all that they need under longer names.

        `done`: the modules whose longer names the importing file has; the import's module is added.
        """
        module = self._module(one.module, one.place)
        own = self._load(".common") if any(name not in module for name, _ in one.names) else None
        if one.module == "common" and own is not None:  # a program may put a `common` of its own before Lark's
            one = replace(one, module=".common")
            module = self._module(one.module, one.place)
        for name, alias in one.names:
            if name not in module:
                near = difflib.get_close_matches(name, module, n=1)
                hint = f": did you mean {near[0]}?" if near else ""
                raise NotationError(one.place, f"the module {one.module} has no {name}{hint}")
            found = module[name]
            params = tuple(Ref(param) for param in found.params)
            long_name = _long(name, one.module)
            yield Definition(alias, Ref(long_name, params, one.place), one.place, found.params, found.priority)
        if one.module not in done:
            done.add(one.module)
            for name, found in module.items():
                body = _renamed(found.body, {*module} - {*found.params}, one.module, one.place)
                yield replace(found, name=_long(name, one.module), body=body, place=one.place, how="new")

    def _module(self, path: str, place: Place) -> dict[str, Definition]:
        if path not in self._modules:
            self._modules[path] = {}  # a module that imports itself finds nothing
            done: set[str] = set()
            for statement in self._statements(path, place):
                if isinstance(statement, Definition):
                    self._modules[path].setdefault(statement.name, statement)
                elif isinstance(statement, Import):
                    inner = self.definitions(replace(statement, place=place), done)
                    self._modules[path] |= {one.name: one for one in inner}
        return self._modules[path]

    def _statements(self, path: str, place: Place) -> tuple[Statement, ...]:
        if path == "common":
            return _common()
        text = self._load(path)
        if text is None:
            message = f"%import {path}: of Lark's modules there is `common` alone; put the rules of other files here"
            raise NotationError(place, message)
        try:
            return tuple(LarkReader(text).read())
        except NotationError as error:
            where = f"line {error.place.line}, column {error.place.column}"
            raise NotationError(place, f"the module {path} is wrong in {where}: {error.message}") from error


def _long(name: str, module: str) -> str:
    return f"{name}__{module.strip('.').replace('.', '_')}"


def _renamed(node: Node, names: set[str], module: str, place: Place) -> Node:
    """Return a node of a module for another file: with longer names, and with the import as the place."""
    if isinstance(node, Ref):
        args = tuple(_renamed(arg, names, module, place) for arg in node.args)
        return Ref(_long(node.name, module) if node.name in names else node.name, args, place)
    done = mapped(node, lambda part: _renamed(part, names, module, place))
    return replace(done, place=place) if isinstance(done, ExactText | Chars | Lexeme | Json | Look) else done
