"""Checks a tokenizer.json from elsewhere before any process of ours loads it.

The tokenizers library may abort, fill the memory or compute for ever over a crafted file, so a child process with
limits loads the tokenizer first (`workers/tokenizer_probe.py`).

The check is made once for a content: the cache folder remembers contents that passed.
"""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Final

from aici_base.cache_files import default_cache_dir, write_atomically
from aici_base.errors import UnavailableError, UsageError
from aici_base.plain_text import without_controls

REFUSED: Final = os.EX_DATAERR
"""Exit status of the child: the file is at fault, and standard output says why."""
PASSED: Final = "passed"
"""What the child says at its end, otherwise."""
MEMORY_MAX_BYTES: Final = 2 << 30
_PROCESSOR_S: Final = 1.0
_PROCESSOR_S_PER_BYTE: Final = 0.3e-6
"""Four times what the largest known tokenizers take, ten times what small ones take."""
_WAIT_S: Final = 120.0
"""A child that gets no processor time is killed, too."""
_MAX_REASON_CHARS: Final = 300
_FORMAT: Final = "1"
"""To be raised when the check becomes stricter."""
_HINT: Final = "the file is damaged, or made to do harm: use the publisher's own"


def check_tokenizer(path: Path) -> None:
    """Raise UsageError with the name of the file if its tokenizer cannot be loaded, multiplies texts, or needs too much
    time or memory; UnavailableError if the check itself fails."""
    status = path.stat()
    _check(path, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache
def _check(path: Path, _inode: int, size_bytes: int, _changed_ns: int) -> None:
    known = default_cache_dir() / "checked" / f"{hashlib.sha256(path.read_bytes()).hexdigest()}-{_FORMAT}"
    if known.is_file():
        return
    _load_in_child(path, _PROCESSOR_S + _PROCESSOR_S_PER_BYTE * size_bytes)
    with contextlib.suppress(UnavailableError):  # then the next start checks again
        write_atomically(known, b"")


def _load_in_child(path: Path, processor_s: float) -> None:
    command = [
        sys.executable,
        "-P",
        "-m",
        "aici_runtime.workers.tokenizer_probe",
        str(path.absolute()),
        str(processor_s),
    ]
    inherited = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
    variables = {name: value for name, value in os.environ.items() if name in inherited}
    try:
        done = subprocess.run(
            [*command, str(os.getpid())],
            env={**variables, "TOKENIZERS_PARALLELISM": "false"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_WAIT_S,
            check=False,
        )
    except OSError as error:
        raise UnavailableError(f"{path} cannot be checked: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise _refused(path, f"no answer within {_WAIT_S:.0f} s") from error
    said = done.stdout.decode(errors="replace").strip()
    match done.returncode:
        case 0 if said == PASSED:
            return
        case code if code == REFUSED:
            raise _refused(path, without_controls(said[:_MAX_REASON_CHARS]))
        case code if code == -signal.SIGPROF:
            raise _refused(path, f"loading and trying it takes more than {processor_s:.1f} s of processor time")
        case code if code in (-signal.SIGABRT, -signal.SIGSEGV):
            raise _refused(path, f"the library crashes over it, or needs more than {MEMORY_MAX_BYTES >> 20} MiB")
        case code:
            last = without_controls(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
            raise UnavailableError(f"{path} cannot be checked: {last or f'exit status {code}'}")


def _refused(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} cannot be loaded as a tokenizer: {why}", hint=_HINT)
