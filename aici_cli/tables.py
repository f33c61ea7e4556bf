"""Tables on stdout: rich's on a terminal, the same words as plain text elsewhere."""

import sys
from collections.abc import Iterable, Sequence

_UNBOUNDED = 10_000
"""Columns of a file or a pipe: no line is folded."""


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, num_left: int = 1) -> None:
    """Print rows of texts below the names of their columns. The first `num_left` columns are flush left, the others,
    numbers, flush right. A row may be shorter than the columns."""
    print(table_text(columns, rows, num_left=num_left, is_terminal=sys.stdout.isatty()))


def print_rows(rows: Iterable[Sequence[object]]) -> None:
    """Print rows without names of columns, flush left; nothing if there are no rows."""
    if kept := list(rows):
        print_table([""] * len(kept[0]), kept, num_left=len(kept[0]))


def table_text(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, num_left: int = 1, is_terminal: bool = False
) -> str:
    """Return the lines of a table, without white space at their ends. On a terminal the names of columns are bold."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(columns))
    for number, name in enumerate(columns):
        # Text, not str: brackets in a name are no markup.
        table.add_column(Text(name), justify="left" if number < num_left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console = Console(highlight=False) if is_terminal else Console(width=_UNBOUNDED, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
