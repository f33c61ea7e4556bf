"""Write a grammar in another notation."""

from typing import NamedTuple

from aici_base.errors import UsageError
from aici_controllers.notations.detect import told_syntax
from aici_controllers.notations.gbnf_writer import write_gbnf
from aici_controllers.notations.lark_imports import Load, no_files
from aici_controllers.notations.lark_writer import write_lark
from aici_controllers.notations.reading import read_tree
from aici_controllers.notations.tree import GrammarSyntax, NotationError
from aici_controllers.notations.y_reader import read_y
from aici_controllers.notations.y_writer import write_y


class Converted(NamedTuple):
    text: str
    notes: list[str]
    """What the new text says otherwise than the old one."""


def converted(
    text: str, to: GrammarSyntax, *, name: str = "grammar", syntax: GrammarSyntax | None = None, load: Load = no_files
) -> Converted:
    """Return a grammar in the notation `to`. Raise UsageError, with line and column, for what has no form there.

    >>> converted('root ::= "yes" | "no"', "lark").text
    'start: ROOT\\nROOT: /yes|no/\\n'
    """
    told = told_syntax(text, name, syntax)
    try:
        if told.syntax == to:
            return Converted(text, ["the grammar is in this notation already"])
        tree = read_y(text) if told.syntax == "y" else read_tree(text, told.syntax, load)
        notes = [f"{name}:{place.line}:{place.column}: {message}" for place, message in tree.warnings]
        if to == "y":
            return Converted(write_y(tree).text, notes)
        written, more = write_lark(tree) if to == "lark" else write_gbnf(tree)
        return Converted(written, notes + more)
    except NotationError as error:
        place = error.place
        where = f"{name}:{place.line}:{place.column}" if place.line else name
        raise UsageError(f"{where}: error: {error.message}") from error
    except RecursionError as error:
        raise UsageError(f"{name}: error: the grammar is nested too deep") from error
