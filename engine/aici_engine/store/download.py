"""Downloads a file in one piece or in several: what an interrupted download left is continued, and the end is checked.

FILE.part   what has arrived so far, also of an earlier process
FILE        complete, with the right hash
"""

import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeAlias

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes present, and the bytes of the whole file, if known."""


class SourceError(Exception):
    """The source cannot provide the model. The text is a reason in one line. `is_wrong_file`: the source has another
    file."""

    def __init__(self, reason: str, *, is_wrong_file: bool = False) -> None:
        super().__init__(reason)
        self.is_wrong_file = is_wrong_file


_ATTEMPTS: Final = 4
_TIMEOUT_S: Final = 60.0
_CHUNK_BYTES: Final = 1 << 18


def download(url: str, file: Path, *, sha256: str, progress: Progress = lambda *_: None) -> None:
    """Download `url` to `file`. Only one process at a time may call, for a file.

    A connection that breaks off is replaced a few times. Raises SourceError if the file does not arrive, or is not the
    file with the hash `sha256`; a wrong file is deleted.
    """
    part = file.with_name(f"{file.name}.part")
    for attempt in range(1, _ATTEMPTS + 1):
        before = _size(part)
        try:
            _continue(url, part, progress)
            break
        except (OSError, http.client.HTTPException) as error:
            # Attempts count only while nothing arrives.
            if attempt == _ATTEMPTS or (_size(part) == before and attempt > 1):
                raise SourceError(f"the download broke off after {_size(part) / 1e6:.0f} MB: {error}") from error
    with part.open("rb") as whole:
        digest = hashlib.file_digest(whole, "sha256").hexdigest()
    if digest != sha256:
        part.unlink()
        raise SourceError(f"the file's sha256 is {digest}, not the pinned {sha256}", is_wrong_file=True)
    part.rename(file)


def _continue(url: str, part: Path, progress: Progress) -> None:
    """Download what is missing. Raises OSError or HTTPException if the connection breaks off."""
    start = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))  # pip has found the address
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing, or the hash will tell
        raise
    with answer:
        if answer.status != HTTPStatus.PARTIAL_CONTENT:
            start = 0
        length = answer.headers["Content-Length"]
        total = None if length is None else start + int(length)
        with part.open("ab" if start else "wb") as out:
            done = start
            progress(done, total)
            while chunk := answer.read(_CHUNK_BYTES):
                out.write(chunk)
                done += len(chunk)
                progress(done, total)
    if total is not None and done < total:
        raise http.client.IncompleteRead(b"", total - done)


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
