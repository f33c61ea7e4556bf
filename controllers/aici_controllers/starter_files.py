"""Write the files that a project starts from: `aici ctrl new` and `aici script new`.

A controller project gets the files of `starters/common` and of one language, with the name filled in. A script needs no
build and gets the files of `script_starters`.
"""

import re
import shutil
from pathlib import Path
from typing import Final

from aici_base.errors import UsageError

_STARTERS: Final = Path(__file__).resolve().parent / "starters"
_SCRIPT_STARTERS: Final = Path(__file__).resolve().parent / "script_starters"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_MARK: Final = "@NAME@"


def languages() -> list[str]:
    return sorted(path.name for path in _STARTERS.iterdir() if path.name != "common")


def write_starter(name: str, language: str, folder: Path) -> Path:
    """Write `folder/name`, which must not exist, and return the path."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid name for a controller", hint="letters, digits, - and _; a letter first"
        )
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


def write_script_starter(language: str, folder: Path, *, force: bool = False) -> list[Path]:
    """Write the files of a script starter into `folder` and return their paths. If a file exists with another
    content, write nothing without `force`."""
    sources = sorted(path for path in (_SCRIPT_STARTERS / language).iterdir() if path.is_file())
    targets = [folder / source.name for source in sources]
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder")
    changed = [t for s, t in zip(sources, targets, strict=True) if t.exists() and t.read_bytes() != s.read_bytes()]
    if changed and not force:
        raise UsageError(f"{changed[0]} exists already", hint="nothing was written; --force replaces the file")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, target in zip(sources, targets, strict=True):
            shutil.copyfile(source, target)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from error
    return targets
