"""What `aici ctrl new` writes: the files of `starters/common` and of one language, with the name filled in."""

import re
import shutil
from pathlib import Path
from typing import Final

from aici_runtime.errors import UsageError

_STARTERS: Final = Path(__file__).resolve().parent / "starters"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_MARK: Final = "@NAME@"


def languages() -> list[str]:
    return sorted(path.name for path in _STARTERS.iterdir() if path.name != "common")


def write_template(name: str, language: str, folder: Path) -> Path:
    """Writes `folder/name`, which must not exist, and returns it."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a controller", hint="letters, digits, - and _; a letter first")
    target = folder / name
    if target.exists():
        raise UsageError(f"{target} exists already", hint="nothing was written; choose another name or --dir")
    for source in (_STARTERS / "common", _STARTERS / language):
        shutil.copytree(source, target, dirs_exist_ok=True)
    for path in target.rglob("*"):
        if path.is_file():
            text = path.read_text()
            if _MARK in text:
                path.write_text(text.replace(_MARK, name))
    return target
