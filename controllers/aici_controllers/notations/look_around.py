"""Rewrite what a regex says about *how* to search into what its texts are: lazy counts, look-ahead, look-behind.

A terminal matches a whole lexeme, so `x(?!y)z` is `x(z & not y...)`, and `/\\*.*?\\*/` is the shortest of its texts.
"""

from collections.abc import Callable

from aici_controllers.notations.facts import NEVER, holds, is_nullable, longest, shortest
from aici_controllers.notations.tree import (
    ANY_TEXT,
    EMPTY,
    NOWHERE,
    Alt,
    Both,
    Look,
    Node,
    Not,
    NotationError,
    Place,
    Repeat,
    Seq,
    Shortest,
    alternatives,
    mapped,
    place_of,
    sequence,
)

Warn = Callable[[Place, str], None]


def without_look_around(node: Node, warn: Warn) -> Node:
    """Return a node with the same texts, without lazy counts and look-around. Raise NotationError where that fails."""
    return _without_looks(_without_lazy_counts(node), warn)


def _without_lazy_counts(node: Node) -> Node:
    if not isinstance(node, Seq):
        if isinstance(node, Repeat) and node.lazy:  # at an end: as few as possible
            return Repeat(_without_lazy_counts(node.item), node.low, node.low) if node.low else EMPTY
        return mapped(node, _without_lazy_counts)
    items = list(node.items)
    start = next((at for at, item in enumerate(items) if isinstance(item, Repeat) and item.lazy), None)
    if start is None:
        return mapped(node, _without_lazy_counts)
    end = next((at for at in range(start + 1, len(items)) if not is_nullable(items[at])), None)
    before = [_without_lazy_counts(item) for item in items[:start]]
    if end is None:
        first = _without_lazy_counts(items[start])
        return sequence(*before, first, _without_lazy_counts(Seq(tuple(items[start + 1 :]))))
    after = items[end + 1 :]
    last = items[end]
    if isinstance(last, Repeat) and last.low and not last.lazy:  # x+ after a lazy count: the first x ends the search
        more = None if last.high is None else last.high - last.low
        after = after if more == 0 else [Repeat(last.item, 0, more), *after]
        last = sequence(*[last.item] * last.low)
    body = sequence(*(_greedy(item) for item in items[start:end]), _greedy(last))
    return sequence(*before, Shortest(body), _without_lazy_counts(Seq(tuple(after))))


def _greedy(node: Node) -> Node:
    if isinstance(node, Repeat):
        return Repeat(_greedy(node.item), node.low, node.high)
    return mapped(node, _greedy)


def _without_looks(node: Node, warn: Warn) -> Node:
    if not holds(node, Look):
        return node
    match node:
        case Look():
            return _without_looks(Seq((node,)), warn)
        case Alt(options):
            return _either(*(_without_looks(option, warn) for option in options))
        case Seq(items):
            return _sequence(items, warn)
        case Repeat(item, low, high):
            return _repetition(item, low, high, warn)
        case _:
            return mapped(node, lambda part: _without_looks(part, warn))


def _sequence(items: tuple[Node, ...], warn: Warn) -> Node:
    at = next(at for at, item in enumerate(items) if holds(item, Look))
    before, here, after = items[:at], items[at], items[at + 1 :]
    match here:
        case Look(item, True, negative, place):
            if not after:
                return _at_the_end(before, item, negative, place, warn)
            begins = sequence(_without_looks(item, warn), ANY_TEXT)
            rest = _without_looks(Seq(after), warn)
            return _never_in(*before, _both(rest, Not(begins) if negative else begins))
        case Look(item, False, negative, _):
            ends = sequence(ANY_TEXT, _without_looks(item, warn))
            kept = _both(sequence(*before), Not(ends) if negative else ends)
            return _without_looks(sequence(kept, *after), warn) if after else kept
        case Alt(options):
            ways = (_without_looks(sequence(*before, option, *after), warn) for option in options)
            return _either(*ways)
        case Repeat(item, 0, 1):
            ways = (_without_looks(sequence(*before, option, *after), warn) for option in (item, EMPTY))
            return _either(*ways)
        case _:
            found = sequence(*before, _without_looks(here, warn), *after)
            return _without_looks(found, warn)


def _at_the_end(before: tuple[Node, ...], item: Node, negative: bool, place: Place, warn: Warn) -> Node:
    """A look-ahead behind everything else speaks of the text after the terminal."""
    if place != NOWHERE and not (negative and longest(item) == 1 and place_of(item) == NOWHERE):
        warn(place, "a look-ahead at the end of a terminal is not enforced: it is about the text after the terminal")
    return sequence(*before)


def _repetition(item: Node, low: int, high: int | None, warn: Warn) -> Node:
    """`(?:(?!x)y)*` are texts of y* without an x inside."""
    match item:
        case Seq((Look(found, True, True, _), *rest)) if not any(holds(one, Look) for one in rest):
            body = sequence(*rest)
            length = longest(found)
            if length is None or length > shortest(body):
                inside = sequence(ANY_TEXT, _without_looks(found, warn), ANY_TEXT)
                return _both(Repeat(body, low, high), Not(inside))
    if all(_sees_inside(option) for option in (item.options if isinstance(item, Alt) else (item,))):
        return Repeat(_without_looks(item, warn), low, high)
    if ends := _looks_at_ends(item):
        free, wrong = ends
        inside = sequence(ANY_TEXT, _without_looks(wrong, warn), ANY_TEXT)
        return _both(Repeat(free, low, high), Not(inside))
    raise NotationError(place_of(item), "this look-around in a repetition is not supported")


def _looks_at_ends(item: Node) -> tuple[Node, Node] | None:
    """For `x(?!y)|z`: `x|z`, and `xy`, which must not be inside of a repetition."""
    free: list[Node] = []
    wrong: list[Node] = []
    for option in item.options if isinstance(item, Alt) else (item,):
        match option:
            case Seq((*before, Look(found, True, True, _))) if not any(holds(one, Look) for one in before):
                free.append(sequence(*before))
                wrong.append(sequence(*before, found))
            case _ if not holds(option, Look):
                free.append(option)
            case _:
                return None
    return alternatives(*free), alternatives(*wrong)


def _sees_inside(node: Node) -> bool:
    """Whether each look-ahead of a sequence sees no farther than the sequence goes."""
    if not holds(node, Look):
        return True
    if not isinstance(node, Seq):
        return False
    for at, item in enumerate(node.items):
        if isinstance(item, Look):
            length = longest(item.item)
            room = node.items[at + 1 :] if item.ahead else node.items[:at]
            if length is None or length > sum(shortest(one) for one in room):
                return False
        elif holds(item, Look):
            return False
    return True


def _both(node: Node, other: Node) -> Node:
    if node == EMPTY:
        return EMPTY if is_nullable(other) else NEVER
    return NEVER if node == NEVER else Both((node, other))


def _never_in(*items: Node) -> Node:
    return NEVER if NEVER in items else sequence(*items)


def _either(*options: Node) -> Node:
    left = [option for option in options if option != NEVER]
    return alternatives(*left) if left else NEVER
