"""From the statements of a Lark file to a tree: imports, templates, %extend and %override are carried out."""

import difflib
import json
from collections.abc import Iterable
from typing import Final

from aici_controllers.notations.lark_file import (
    Declare,
    Definition,
    Ignore,
    Import,
    Options,
    Statement,
    is_terminal,
)
from aici_controllers.notations.lark_imports import Imports, Load, no_files
from aici_controllers.notations.lark_reader import LarkReader
from aici_controllers.notations.look_around import without_look_around
from aici_controllers.notations.parameters import bound, only_ending
from aici_controllers.notations.tree import (
    Both,
    ExactText,
    Indentation,
    Json,
    Lexeme,
    Node,
    Not,
    NotationError,
    Parametric,
    Place,
    Ref,
    Rule,
    Shortest,
    Tree,
    alternatives,
    mapped,
    sequence,
    walk,
)

_MAX_INSTANCES: Final = 2000
_MAX_NODES: Final = 200_000
_NO_EFFECT: Final = ("capture", "stop_capture", "temperature")
_NEWLINES: Final = ("_NEWLINE", "_NL", "NEWLINE", "NL")
"""How a terminal is called that Lark's Indenter takes for the newline."""
_INSTEAD: Final = {"max_tokens": "; bound characters, as in /.{1,200}/", "stop": "; use suffix"}
"""What to write in the place of an attribute that is refused."""


def read_lark(text: str, *, load: Load = no_files) -> Tree:
    """Return the tree of a Lark grammar. Raise NotationError where the text is wrong or not supported."""
    return _Meaning(LarkReader(text).read(), load).tree("start")


class _Meaning:
    def __init__(self, statements: list[Statement], load: Load) -> None:
        self._imports = Imports(load)
        self._imported: set[str] = set()
        self._definitions: dict[str, Definition] = {}
        self._rules: dict[str, Rule] = {}
        self._terminals: dict[str, Rule] = {}
        self._instances: dict[Ref, str] = {}
        self._numbered: dict[tuple[str, int], str] = {}
        self._declared: dict[str, Place] = {}
        self._ignored: list[Ignore] = []
        self._open: list[str] = []
        self._todo: list[str] = []
        self._num_nodes = 0
        self._warnings: list[tuple[Place, str]] = []
        self._collect(statements)

    def tree(self, start: str) -> Tree:
        if start not in self._definitions:
            first = next((place for place in self._places()), Place(1, 1))
            message = f"a grammar of Lark begins with the rule {start}, which is not defined: put `{start}: NAME` first"
            raise NotationError(first, message)
        self._rule(start)
        while self._todo:
            self._define_rule(self._todo.pop())
        indentation = self._indentation()
        if indentation:
            self._terminal(indentation.newline, (), self._definitions[indentation.newline].place)
        ignored = tuple(self._regular(Lexeme(one.body, one.place), one.place) for one in self._ignored)
        for name, one in self._definitions.items():
            if (
                name not in self._rules
                and not one.is_terminal
                and not one.params
                and not one.has_number
                and one.place.line
            ):
                self._warnings.append((one.place, f"the rule {name} is never used"))
        return Tree(
            syntax="lark",
            start=start,
            rules=only_ending(self._rules, start) if self._numbered else self._rules,
            terminals=self._terminals,
            ignored=ignored,
            indentation=indentation,
            warnings=tuple(self._warnings),
        )

    def _places(self) -> Iterable[Place]:
        return (one.place for one in self._definitions.values() if one.place.line)

    def _warn(self, place: Place, message: str) -> None:
        self._warnings.append((place, message))

    def _collect(self, statements: list[Statement]) -> None:
        for one in statements:
            match one:
                case Definition():
                    self._add(one)
                case Ignore():
                    self._ignored.append(one)
                case Import():
                    self._import(one)
                case Declare(names, place):
                    self._declared |= dict.fromkeys(names, place)
                case Options(values, place):
                    self._check_options(values, place)

    def _add(self, new: Definition) -> None:
        known = self._definitions.get(new.name)
        if new.how == "new" and known:
            raise NotationError(
                new.place, f"{new.name} is defined a second time; the first is in line {known.place.line}"
            )
        if new.how != "new" and not known:
            raise NotationError(new.place, f"%{new.how} {new.name}: {new.name} is not defined or imported above")
        if new.how == "extend" and known:
            body = alternatives(known.body, new.body)
            new = Definition(new.name, body, known.place, known.params, known.priority, known.attributes)
        self._definitions[new.name] = new

    def _import(self, one: Import) -> None:
        for found in self._imports.definitions(one, self._imported):
            self._definitions.setdefault(found.name, found)

    def _check_options(self, values: dict[str, object], place: Place) -> None:
        for key in values:
            if key != "no_forcing" and values[key] not in (False, None):
                self._warn(place, f"%llguidance: {json.dumps(key)} has no effect here")

    def _undefined(self, name: str, before: str) -> str:
        near = difflib.get_close_matches(name, [*self._definitions], n=1)
        return f"{before} is not defined" + (f": did you mean {near[0]}?" if near else "")

    def _indentation(self) -> Indentation | None:
        """Return what Lark's Indenter makes of lines, if the names are those of its examples."""
        indent = [name for name in self._declared if name.strip("_") == "INDENT"]
        dedent = [name for name in self._declared if name.strip("_") == "DEDENT"]
        newline = [name for name in _NEWLINES if name in self._definitions]
        return Indentation(newline[0], indent[0], dedent[0]) if indent and dedent and newline else None

    # Rules.

    def _rule(self, name: str) -> None:
        if name not in self._rules and name not in self._todo:
            self._todo.append(name)

    def _define_rule(self, name: str) -> None:
        one = self._definitions[name]
        body = self._context_free(bound(one.body, one.number))
        if "temperature" in one.attributes:
            self._warn(one.place, "the attribute temperature has no effect: the request's temperature holds everywhere")
        if kept := {key: value for key, value in one.attributes.items() if key not in _NO_EFFECT}:
            body = self._with_attributes(one, kept)
        self._rules[name] = Rule(name, body, one.place, one.priority)

    def _with_attributes(self, one: Definition, attributes: dict[str, Node | None]) -> Node:
        """llguidance's `lazy` and `suffix`: the rule is one lexeme, as short as possible."""
        for name in attributes:
            if name in _INSTEAD:
                raise NotationError(
                    one.place,
                    f"the attribute {name} is not supported: it is no part of the text's form" + _INSTEAD[name],
                )
            if name not in ("lazy", "suffix"):
                raise NotationError(one.place, f"the attribute {name} is not known: there are lazy, suffix and capture")
        suffix = attributes.get("suffix")
        body = one.body if suffix is None else sequence(one.body, suffix)
        regular = self._regular(Lexeme(body, one.place), one.place)
        return Lexeme(Shortest(regular), one.place)

    def _context_free(self, node: Node) -> Node:
        match node:
            case Ref(name, args, place):
                return self._reference(name, args, place)
            case Parametric(name, int(number), place):
                return Ref(self._with_number(name, number, place), (), place)
            case Lexeme(_, place):
                return Lexeme(self._regular(node, place), place)
            case Both() | Not():
                first = next((part.place for part in walk(node) if isinstance(part, Ref | ExactText | Lexeme)), Place())
                raise NotationError(
                    first, "& and ~ belong to terminals: name the whole in capitals and refer to the name"
                )
            case _:
                self._count()
                return mapped(node, self._context_free)

    def _reference(self, name: str, args: tuple[Node, ...], place: Place) -> Node:
        found = self._definitions.get(name)
        if name in self._declared and not found:
            if (lines := self._indentation()) and name in (lines.indent, lines.dedent):
                return Ref(name, (), place)
            message = f"{name} is declared with %declare: a Python program makes it, and no text is known for it"
            raise NotationError(place, message)
        if not found:
            raise NotationError(place, self._undefined(name, name))
        if is_terminal(name):
            return self._terminal(name, args, place)
        if found.has_number:
            raise NotationError(place, f"{name} has a parameter: give a number, such as {name}::0")
        if not args and not found.params:
            self._rule(name)
            return Ref(name, (), place)
        return Ref(self._instance(found, args, place), (), place)

    def _instance(self, template: Definition, args: tuple[Node, ...], place: Place) -> str:
        """Return the name of the rule that a template makes with these arguments."""
        bound = self._bound(template, args, place)
        key = Ref(template.name, tuple(bound.values()))
        if key not in self._instances:
            if len(self._instances) >= _MAX_INSTANCES:
                raise NotationError(place, f"the template {template.name} makes more than {_MAX_INSTANCES} rules")
            name = f"{template.name}_{len(self._instances) + 1}"
            while name in self._definitions:
                name += "_"
            self._instances[key] = name
            self._definitions[name] = Definition(name, _bind(template.body, bound), template.place)
            self._rule(name)
        return self._instances[key]

    def _with_number(self, name: str, number: int, place: Place) -> str:
        """Return the name of the rule that stands for a parametric rule with this number."""
        found = self._definitions.get(name)
        if not found:
            raise NotationError(place, self._undefined(name, name))
        if not found.has_number:
            raise NotationError(
                place, f"{name} has no parameter: a rule with a parameter is defined as `rule::_ : ...`"
            )
        if (name, number) not in self._numbered:
            if len(self._numbered) >= _MAX_INSTANCES:
                raise NotationError(place, f"parameters make more than {_MAX_INSTANCES} rules")
            new = f"{name}_{number}"
            while new in self._definitions:
                new += "_"
            self._numbered[name, number] = new
            self._definitions[new] = Definition(new, found.body, found.place, number=number)
            self._rule(new)
        return self._numbered[name, number]

    def _bound(self, template: Definition, args: tuple[Node, ...], place: Place) -> dict[str, Node]:
        if len(args) != len(template.params):
            expected = f"{template.name} is a template of {len(template.params)} arguments, and is given {len(args)}"
            raise NotationError(place, expected if template.params else f"{template.name} is no template")
        return dict(zip(template.params, args, strict=True))

    # Terminals.

    def _terminal(self, name: str, args: tuple[Node, ...], place: Place) -> Node:
        found = self._definitions[name]
        if args or found.params:
            return Lexeme(self._regular(Lexeme(Ref(name, args, place), place), place), place)
        if name not in self._terminals:
            body = self._regular(Lexeme(Ref(name, (), place), place), found.place)
            self._terminals[name] = Rule(name, body, found.place, found.priority)
        return Ref(name, (), place)

    def _regular(self, lexeme: Lexeme, place: Place) -> Node:
        """Return a node without references, look-around and lazy counts."""
        whole = self._spelled_out(lexeme.item)
        num_warnings = len(self._warnings)
        try:
            return self._without_look_around(whole, place)
        except NotationError:  # each regex by itself: a repetition of terminals, say
            del self._warnings[num_warnings:]
            return self._without_look_around(self._spelled_out(lexeme.item, place), place)

    def _without_look_around(self, node: Node, place: Place) -> Node:
        return without_look_around(node, lambda at, why: self._warn(at if at.line else place, why))

    def _spelled_out(self, node: Node, alone: Place | None = None) -> Node:
        """Return a node without references. `alone`: a place; look-around of each regex is carried out by itself."""
        self._count()
        match node:
            case Lexeme(item):
                inner = self._spelled_out(item, alone)
                return self._without_look_around(inner, alone) if alone else inner
            case Parametric(_, _, place):
                raise NotationError(place, "a terminal has no parameter: only rules have")
            case Json(_, place):
                raise NotationError(place, "%json stands in a rule, not in a terminal: write the name in small letters")
            case Ref(name, args, place):
                found = self._definitions.get(name)
                if not found:
                    raise NotationError(place, self._undefined(name, name))
                if not found.is_terminal:
                    raise NotationError(place, f"the terminal needs terminals inside, and {name} is a rule")
                if name in self._open:
                    raise NotationError(
                        place, f"the terminal {name} contains itself: terminals are regular, rules may recurse"
                    )
                self._open.append(name)
                body = self._spelled_out(_bind(found.body, self._bound(found, args, place)), alone)
                self._open.pop()
                return self._with_terminal_attributes(found, body)
            case _:
                return mapped(node, lambda part: self._spelled_out(part, alone))

    def _with_terminal_attributes(self, one: Definition, body: Node) -> Node:
        kept = {key for key in one.attributes if key not in _NO_EFFECT}
        if kept - {"lazy", "suffix"}:
            raise NotationError(one.place, f"the attribute {min(kept - {'lazy', 'suffix'})} is not supported")
        suffix = one.attributes.get("suffix")
        return Shortest(body if suffix is None else sequence(body, self._spelled_out(suffix))) if kept else body

    def _count(self) -> None:
        self._num_nodes += 1
        if self._num_nodes > _MAX_NODES:
            raise NotationError(
                Place(1, 1), "the grammar is too large once its terminals and templates are written out"
            )


def _bind(node: Node, bound: dict[str, Node]) -> Node:
    if isinstance(node, Ref) and not node.args and node.name in bound:
        return bound[node.name]
    return mapped(node, lambda part: _bind(part, bound)) if bound else node
