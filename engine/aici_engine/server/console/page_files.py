"""The files of the built page, in memory, each with a compressed form."""

import gzip
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aici_engine.server.console.build import PAGE

_TEXT: Final = ("text/", "application/json", "image/svg+xml")


@dataclass(frozen=True, slots=True)
class PageFile:
    """`compressed`: `content` in gzip's format; None where that is no smaller. `is_hashed`: the name changes with the
    content, so a browser may keep the file for ever.
    """

    content: bytes
    media_type: str
    compressed: bytes | None
    is_hashed: bool


def read_page(folder: Path = PAGE) -> dict[str, PageFile]:
    """Return the files by their path below `folder`; empty if the page was not built."""
    index = folder / "index.html"
    if not index.exists():
        return {}
    return {str(path.relative_to(folder)): _read(path, folder) for path in folder.rglob("*") if path.suffix in _SERVED}


_SERVED: Final = (".html", ".js", ".css", ".svg", ".woff2", ".json")


def _read(path: Path, folder: Path) -> PageFile:
    content = path.read_bytes()
    media_type = "text/javascript" if path.suffix == ".js" else mimetypes.guess_type(path.name)[0] or "text/plain"
    compressed = gzip.compress(content, mtime=0) if media_type.startswith(_TEXT) else content
    return PageFile(
        content=content,
        media_type=f"{media_type}; charset=utf-8" if media_type.startswith("text/") else media_type,
        compressed=compressed if len(compressed) < len(content) else None,
        is_hashed=path.relative_to(folder).parts[0] == "assets",
    )
