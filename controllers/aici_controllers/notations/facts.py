"""Facts about regular nodes: whether a node matches the empty text, how long its texts are, its non-empty part.

The nodes hold no Ref; look-around and lazy counts are gone (`look_around.py`) or count as empty.
"""

from typing import Final

from aici_controllers.notations.tree import (
    ANY_CHAR,
    EMPTY,
    Alt,
    Both,
    Chars,
    ExactText,
    Guarded,
    Json,
    Lexeme,
    Look,
    Node,
    Not,
    Parametric,
    Pattern,
    Ref,
    Repeat,
    Seq,
    Shortest,
    alternatives,
    parts,
    sequence,
)

NEVER: Final = Alt(())
"""The node without texts."""
_SOME_TEXT: Final = Repeat(ANY_CHAR, 1, None)


def is_nullable(node: Node) -> bool:
    match node:
        case ExactText(value):
            return not value
        case Chars() | Ref() | Json() | Pattern() | Parametric():
            return False
        case Look():
            return True
        case Seq(items) | Both(items):
            return all(is_nullable(item) for item in items)
        case Alt(options):
            return any(is_nullable(option) for option in options)
        case Repeat(item, low):
            return low == 0 or is_nullable(item)
        case Not(item):
            return not is_nullable(item)
        case Shortest(item) | Lexeme(item) | Guarded(item):
            return is_nullable(item)


def nonempty(node: Node) -> Node:
    """Return the texts of a nullable node except the empty one."""
    if not is_nullable(node):
        return node
    match node:
        case Alt(options):
            left = [nonempty(option) for option in options if option != EMPTY]
            return alternatives(*(option for option in left if option != NEVER)) if left else NEVER
        case Repeat(item, _, high) if not is_nullable(item):
            return NEVER if high == 0 else Repeat(item, 1, high)
        case Seq(()) | ExactText():
            return NEVER
        case Seq(items):
            # Each way begins with the first item that is not empty.
            ways = [(nonempty(item), items[at + 1 :]) for at, item in enumerate(items)]
            return alternatives(*(sequence(first, *rest) for first, rest in ways if first != NEVER))
        case _:
            return Both((node, _SOME_TEXT))


def longest(node: Node) -> int | None:
    """Return the length of the longest text in code points; None: no bound is known."""
    match node:
        case ExactText(value):
            return len(value)
        case Chars():
            return 1
        case Look():
            return 0
        case Seq(items):
            lengths = [longest(item) for item in items]
            known = [length for length in lengths if length is not None]
            return sum(known) if len(known) == len(lengths) else None
        case Alt(options):
            lengths = [longest(option) for option in options]
            known = [length for length in lengths if length is not None]
            return max(known, default=0) if len(known) == len(lengths) else None
        case Repeat(item, _, high):
            length = longest(item)
            return None if length is None or high is None else length * high
        case Both(items):
            known = [length for length in map(longest, items) if length is not None]
            return min(known, default=None)
        case Shortest(item):
            return longest(item)
        case _:
            return None


def shortest(node: Node) -> int:
    """Return a length that no text of `node` falls below."""
    match node:
        case ExactText(value):
            return len(value)
        case Chars():
            return 1
        case Seq(items):
            return sum(shortest(item) for item in items)
        case Alt(options):
            return min((shortest(option) for option in options), default=0)
        case Repeat(item, low):
            return shortest(item) * low
        case Both(items):
            return max((shortest(item) for item in items), default=0)
        case Shortest(item):
            return shortest(item)
        case _:
            return 0


def holds(node: Node, kind: type) -> bool:
    """Return whether a node of the class `kind` is in `node`."""
    return isinstance(node, kind) or any(holds(part, kind) for part in parts(node))
