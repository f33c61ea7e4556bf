"""What stands in a Lark file, statement by statement; names are not resolved yet."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from aici_controllers.notations.tree import Node, Place


@dataclass(frozen=True, slots=True)
class Definition:
    """A rule or a terminal. `params`: of a template. `has_number`: llguidance's `rule::_`. `number`: the parameter
    of an instance of such a rule."""

    name: str
    body: Node
    place: Place
    params: tuple[str, ...] = ()
    priority: int | None = None
    attributes: dict[str, "Node | None"] = field(default_factory=dict)
    """llguidance's attributes: `name[lazy, suffix="x"]: ...`."""
    how: Literal["new", "extend", "override"] = "new"
    has_number: bool = False
    number: int | None = None

    @property
    def is_terminal(self) -> bool:
        return is_terminal(self.name)


@dataclass(frozen=True, slots=True)
class Ignore:
    body: Node
    place: Place


@dataclass(frozen=True, slots=True)
class Import:
    """`names`: the imported name and the name it gets here."""

    module: str
    names: tuple[tuple[str, str], ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Declare:
    names: tuple[str, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Options:
    """`%llguidance {...}`."""

    values: dict[str, object]
    place: Place


Statement: TypeAlias = Definition | Ignore | Import | Declare | Options


def is_terminal(name: str) -> bool:
    """Return whether a name is a terminal's: its first letter is a capital."""
    return name.lstrip("_")[:1].isupper()
