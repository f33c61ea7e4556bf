"""Tables of Markdown."""

from collections.abc import Iterable, Sequence

NOTE = "<!-- Written by `make generated` from {source}: do not edit. -->\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; empty without rows. Cells may hold any text but line ends."""
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    if not lines:
        return ""
    return "\n".join(["", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {line} |" for line in lines), ""])


def one_line(text: str | None) -> str:
    return " ".join((text or "").split())
