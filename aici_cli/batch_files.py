"""The two files of `aici batch`: lines in, results out. The file of results alone says which lines are finished.

A process may be killed at any moment. Results are appended as whole lines and synchronised with the disk before they
count. So a later run finds whole results, and at most one torn line at the end.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Self

import orjson

from aici_base.cache_files import sync
from aici_base.errors import InUseError, NotFoundError, UsageError
from aici_engine.server.batches.line import RESULT_HEAD, Line, LineError, read_line

_NO_ROOM_HINT: Final = "name another file with -o, or move this one"


class BatchInput:
    """The lines of a file or of stdin, checked before anything runs. A context manager.

    `ids`: the custom_id of every line, in order. Raises UsageError with the number of the first line that is wrong.
    """

    def __init__(self, path: Path) -> None:
        self._name = "stdin" if str(path) == "-" else str(path)
        self._file = _opened(path)
        try:
            self.ids = self._check()
        except BaseException:
            self._file.close()
            raise

    def lines(self, finished: Collection[str] = ()) -> Iterator[Line]:
        """Yield the lines whose custom_id is not among `finished`, in the order of the file."""
        for _, text in self._texts():
            line = read_line(text)
            if line.custom_id not in finished:
                yield line

    def is_file(self, path: Path) -> bool:
        """Return whether `path` is the file that is read here."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self._file.fileno()), path.stat())
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def _check(self) -> dict[str, int]:
        """Return custom_id → number of the line."""
        ids: dict[str, int] = {}
        for number, text in self._texts():
            try:
                line = read_line(text)
            except LineError as error:
                raise UsageError(f"{self._name}, line {number}: {error.message}", hint=error.hint) from error
            if (first := ids.setdefault(line.custom_id, number)) != number:
                raise UsageError(
                    f"{self._name}, line {number}: the custom_id {line.custom_id!r} is that of line {first} too",
                    hint="results are told apart by their custom_id: give every line its own",
                )
        if not ids:
            raise UsageError(f"{self._name} has no lines", hint="each line is a request as a JSON object")
        return ids

    def _texts(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number, text) of the lines that are not blank."""
        self._file.seek(0)
        for number, text in enumerate(self._file, 1):
            bare = (text.removeprefix(b"\xef\xbb\xbf") if number == 1 else text).strip()
            if bare:
                yield number, bare


class BatchOutput:
    """The file of results, or stdout. A context manager.

    `finished`: custom_id of every result in the file → whether the result is an error. A torn last line is cut off.
    Raises UsageError if the file is anything else than results, and InUseError if another process writes the file.
    """

    def __init__(self, path: Path) -> None:
        self.finished: dict[str, bool] = {}
        self.path = path
        if str(path) == "-":
            self._descriptor, self._is_file = os.dup(sys.stdout.fileno()), False
            return
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from error
        self._is_file = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        try:
            if self._is_file:
                self._resume()
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, results: Sequence[bytes]) -> None:
        """Append whole lines. They are on the disk when this returns."""
        rest = memoryview(b"".join(results))
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        if self._is_file:
            os.fsync(self._descriptor)

    def drop_errors(self) -> None:
        """Remove the results that are errors. A killed process leaves the old file or the new file."""
        if not any(self.finished.values()):
            return
        path = self.path.resolve()
        try:
            self._descriptor = self._without_errors(path, path.with_name(f".{path.name}.{os.getpid()}.tmp"))
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from error
        self.finished = {custom_id: False for custom_id, is_error in self.finished.items() if not is_error}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._descriptor)

    def _resume(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InUseError(f"another process writes {self.path}", hint="wait for its end, or end it") from error
        end = 0
        with open(self._descriptor, "rb", closefd=False) as file:
            for number, text in enumerate(file, 1):
                if text.endswith(b"\n"):
                    self._take(number, text)
                    end += len(text)
                elif not _is_torn_result(text):
                    raise self._stranger(number)
        os.ftruncate(self._descriptor, end)
        os.fsync(self._descriptor)
        sync(self.path.parent)  # the name of a new file

    def _without_errors(self, path: Path, new: Path) -> int:
        """Replace the file by `new`, which has the results that are no errors; return the locked descriptor."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(new, flags, stat.S_IMODE(os.fstat(self._descriptor).st_mode))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with open(self._descriptor, "rb", closefd=False) as old, open(descriptor, "wb", closefd=False) as kept:
                old.seek(0)
                kept.writelines(text for text in old if not self.finished[orjson.loads(text)["custom_id"]])
            os.fsync(descriptor)
            new.rename(path)
            sync(path.parent)
        except BaseException:
            new.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        os.close(self._descriptor)
        return descriptor

    def _take(self, number: int, text: bytes) -> None:
        try:
            found = orjson.loads(text)
            custom_id, response, error = found["custom_id"], found["response"], found["error"]
            is_error = error is not None or response["status_code"] != 200
        except (orjson.JSONDecodeError, KeyError, TypeError) as wrong:
            raise self._stranger(number) from wrong
        if custom_id in self.finished:
            raise UsageError(f"{self.path}, line {number}: a second result of {custom_id!r}", hint=_NO_ROOM_HINT)
        self.finished[custom_id] = is_error

    def _stranger(self, number: int) -> UsageError:
        return UsageError(f"{self.path}, line {number}: this is no result of a batch", hint=_NO_ROOM_HINT)


def _is_torn_result(text: bytes) -> bool:
    """Return whether a line without an end is the beginning of a result. A lost write may read as zeros."""
    text = text.rstrip(b"\0")
    return text.startswith(RESULT_HEAD) or RESULT_HEAD.startswith(text)


def _opened(path: Path) -> BinaryIO:
    """Return a file that can be read twice. stdin and pipes are copied first."""
    try:
        source = sys.stdin.buffer if str(path) == "-" else path.open("rb")
        if str(path) != "-" and stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            return source
        copy = tempfile.TemporaryFile()  # noqa: SIM115  # closed by BatchInput
        shutil.copyfileobj(source, copy)
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror}") from error
    return copy
