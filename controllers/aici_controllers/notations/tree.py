"""A grammar as a tree that no notation owns: readers make the tree, writers print it.

A node is a set of texts. Rules are context-free and refer to rules by name; terminals are regular. Every node that a
user wrote has the `Place` where it stands, so that a problem found later is told where the user can see it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

GrammarSyntax: TypeAlias = Literal["y", "lark", "gbnf"]


class Place(NamedTuple):
    """Line and column in the user's file, from 1, in code points. 0: no place."""

    line: int = 0
    column: int = 0


NOWHERE: Final = Place()


class NotationError(Exception):
    """The text is wrong as a grammar. The package catches the error and returns a GrammarProblem."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place
        self.message = message


@dataclass(frozen=True, slots=True)
class ExactText:
    """Exactly this text; with `caseless`, letters match in either case."""

    value: str
    caseless: bool = False
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Chars:
    """One code point of a class. `source`: the class in the syntax of regexes, such as `[a-z]`, `\\d` or `.`."""

    source: str
    caseless: bool = False
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Ref:
    """The rule or the terminal of this name; with `args`, an instance of a template."""

    name: str
    args: tuple["Node", ...] = ()
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Seq:
    """The items, one after the other. Without items: the empty text."""

    items: tuple["Node", ...] = ()


@dataclass(frozen=True, slots=True)
class Alt:
    options: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item`, `low` to `high` times; None: any number of times. `lazy`: as few times as possible, in a regex."""

    item: "Node"
    low: int
    high: int | None
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class Both:
    """The texts that all items match. Regular."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The texts that `item` does not match. Regular."""

    item: "Node"


@dataclass(frozen=True, slots=True)
class Shortest:
    """The texts of `item` that do not begin with a shorter text of `item`. Regular."""

    item: "Node"


@dataclass(frozen=True, slots=True)
class Look:
    """A look-ahead or look-behind of a regex: what follows here, or precedes, matches `item`, or does not."""

    item: "Node"
    ahead: bool
    negative: bool
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A terminal without a name, inside a rule. What is inside is regular and read as one lexeme."""

    item: "Node"
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON text under the JSON Schema `schema`, which is JSON text."""

    schema: str
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression in the syntax of the guest `regex`."""

    source: str
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Parametric:
    """A rule with a parameter: a number, or what makes the number of the own rule's (`parameters.py`). Lark's only."""

    name: str
    value: object
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Guarded:
    """An alternative for some parameters of the rule (`parameters.py`). Lark's only."""

    item: "Node"
    condition: object


Node: TypeAlias = (
    ExactText
    | Chars
    | Ref
    | Seq
    | Alt
    | Repeat
    | Both
    | Not
    | Shortest
    | Look
    | Lexeme
    | Json
    | Pattern
    | Parametric
    | Guarded
)

_PLACED: Final = (ExactText, Chars, Ref, Lexeme, Json, Pattern, Parametric, Look)
EMPTY: Final = Seq()
ANY_CHAR: Final = Chars("(?s:.)")
ANY_TEXT: Final = Repeat(ANY_CHAR, 0, None)


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    body: Node
    place: Place = NOWHERE
    priority: int | None = None
    """Of a terminal: the higher priority wins where two terminals match the same text. None: not given."""


class Indentation(NamedTuple):
    """Names for lines and their indentation. `newline` is a terminal; `indent` and `dedent` have no text and stand in
    rules as a Ref."""

    newline: str
    indent: str
    dedent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A grammar. `terminals` is empty if the grammar is scannerless: then rules are read character by character, every
    reading is followed, and `ignored` is empty too."""

    syntax: GrammarSyntax
    start: str
    rules: dict[str, Rule]
    terminals: dict[str, Rule] = field(default_factory=dict)
    ignored: tuple[Node, ...] = ()
    scannerless: bool = False
    indentation: Indentation | None = None
    warnings: tuple[tuple[Place, str], ...] = ()


def sequence(*items: Node) -> Node:
    """Return the sequence of the items, flat."""
    flat: list[Node] = []
    for item in items:
        flat += item.items if isinstance(item, Seq) else [item]
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def alternatives(*options: Node) -> Node:
    """Return the alternative of the options, flat, each once."""
    flat: list[Node] = []
    for option in options:
        flat += option.options if isinstance(option, Alt) else [option]
    flat = list(dict.fromkeys(flat))
    return flat[0] if len(flat) == 1 else Alt(tuple(flat))


def parts(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly below `node`."""
    match node:
        case Seq(items) | Both(items):
            return items
        case Alt(options):
            return options
        case Repeat(item) | Not(item) | Shortest(item) | Look(item) | Lexeme(item) | Guarded(item):
            return (item,)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """Yield `node` and all nodes below."""
    yield node
    for part in parts(node):
        yield from walk(part)


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return `node` with `change` applied to the nodes directly below."""
    match node:
        case Seq(items):
            return sequence(*(change(item) for item in items))
        case Alt(options):
            return alternatives(*(change(option) for option in options))
        case Both(items):
            return Both(tuple(change(item) for item in items))
        case Repeat(item, low, high, lazy):
            return Repeat(change(item), low, high, lazy)
        case Not(item):
            return Not(change(item))
        case Shortest(item):
            return Shortest(change(item))
        case Look(item, ahead, negative, place):
            return Look(change(item), ahead, negative, place)
        case Lexeme(item, place):
            return Lexeme(change(item), place)
        case Guarded(item, condition):
            return Guarded(change(item), condition)
        case Ref(name, args, place) if args:
            return Ref(name, tuple(change(arg) for arg in args), place)
        case _:
            return node


def place_of(node: Node) -> Place:
    """Return the place of the first part that has one."""
    return next((part.place for part in walk(node) if isinstance(part, _PLACED) and part.place != NOWHERE), NOWHERE)
