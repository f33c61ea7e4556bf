"""Read a grammar in any notation, and hand out the text for the guest."""

from dataclasses import dataclass
from pathlib import Path

from aici_controllers.check_cost import MAX_TEXT_BYTES, one_tank
from aici_controllers.notations.detect import Told, told_syntax
from aici_controllers.notations.gbnf_reader import read_gbnf
from aici_controllers.notations.lark_imports import Load, no_files
from aici_controllers.notations.lark_meaning import read_lark
from aici_controllers.notations.tree import GrammarSyntax, NotationError, Place, Tree
from aici_controllers.notations.y_writer import GuestText, write_y


@dataclass(frozen=True, slots=True)
class Reading:
    """A grammar as the guest reads it. `error`: why the guest gets nothing; then `guest` is empty."""

    told: Told
    guest: GuestText
    warnings: tuple[tuple[Place, str], ...] = ()
    error: tuple[Place, str] | None = None

    def place(self, line: int, column: int) -> Place:
        """Return the place in the user's file of a line and column of the guest's text."""
        return Place(line, column) if self.told.syntax == "y" else self.guest.place(line, column)


def beside(folder: Path) -> Load:
    """Return how `%import .names` finds the file `names.lark` in `folder`; one more dot goes one folder up."""

    def load(path: str) -> str | None:
        up, inside = len(path) - len(path.lstrip(".")), path.lstrip(".")
        file = folder.joinpath(*[".."] * (up - 1), *inside.split(".")).with_suffix(".lark")
        try:
            return file.read_text(encoding="utf-8-sig") if up else None
        except (OSError, ValueError):
            return None

    return load


def read_tree(text: str, syntax: GrammarSyntax, load: Load = no_files) -> Tree:
    """Return the tree of a grammar in Lark or GBNF. Raise NotationError where the text is wrong."""
    with one_tank() as tank:
        tank.text_bytes -= len(text)
        if tank.text_bytes < 0:
            raise NotationError(Place(0, 0), f"grammars in Lark and GBNF may have {MAX_TEXT_BYTES >> 10} KiB together")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return read_lark(text, load=load) if syntax == "lark" else read_gbnf(text)


def read_notation(text: str, *, name: str = "", syntax: GrammarSyntax | None = None, load: Load = no_files) -> Reading:
    """Read a grammar. `name`: the file's name, whose extension tells the notation unless `syntax` does."""
    told = told_syntax(text, name, syntax)
    if told.syntax == "y":
        return Reading(told, GuestText(text))
    try:
        tree = read_tree(text, told.syntax, load)
        return Reading(told, write_y(tree), tree.warnings)
    except NotationError as error:
        return Reading(told, GuestText(""), error=(error.place, error.message))
    except RecursionError:
        return Reading(told, GuestText(""), error=(Place(1, 1), "the grammar is nested too deep"))
