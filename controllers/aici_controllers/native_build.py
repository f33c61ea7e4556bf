"""Compile libraries in C that run beside Python: the engine's kernels and the loop of guests. Needs the package
`ziglang` alone."""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aici_base.cache_files import write_atomically
from aici_base.native_library import c_sources, digest, source_number
from aici_controllers import zig
from aici_controllers.compilers import Command, run_all

GLIBC: Final = "2.28"
"""The oldest supported glibc, as for the wheels of torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeBuild:
    """A library to compile from the C files in `sources`.

    `cpu`: of the machine, in the compiler's words. `version`: the name of the macro with the hash of the sources.
    `wrong`: the error message if the compiler fails.
    """

    out: Path
    sources: Path
    machine: str
    cpu: str
    flags: Sequence[str]
    version: str
    wrong: str

    @property
    def hash_file(self) -> Path:
        """The file that records sources, flags and toolchain."""
        return self.out.with_suffix(".hash")

    def state(self) -> str:
        sources = digest(c_sources(self.sources), self.sources)[:16]
        return f"{sources} {zig.version()} {GLIBC} {self.flags} {self.cpu}\n"

    def is_stale(self) -> bool:
        """Whether the library is missing, or was built in another way."""
        return not (self.out.exists() and self.hash_file.exists() and self.hash_file.read_text() == self.state())

    def command(self, out: Path, *, files: Sequence[Path] = (), flags: Sequence[str] = ()) -> Command:
        """Return the command that compiles `files`, by default all, with more `flags`."""
        target = ("-target", f"{self.machine}-linux-gnu.{GLIBC}", f"-mcpu={self.cpu}")
        names = (f"-ffile-prefix-map={self.sources}=.", f"-D{self.version}={source_number(self.sources)}")
        paths = [str(path) for path in files or c_sources(self.sources) if path.suffix == ".c"]
        return zig.command(self.wrong, "cc", *target, *self.flags, *names, *flags, *paths, "-lm", "-o", str(out))


def build_stale(builds: Sequence[NativeBuild]) -> list[Path]:
    """Build the libraries that are missing or stale, in parallel. Return all libraries, in order.

    Raises ControllerError with the compiler's output, UnavailableError without a compiler.
    """
    if stale := [each for each in builds if each.is_stale()]:
        zig.require()
        with tempfile.TemporaryDirectory(prefix="aici-native-") as folder:
            said = run_all([each.command(Path(folder) / each.out.name) for each in stale])
            sys.stderr.write("".join(said))
            for each in stale:
                # Replace the file, because a process may have mapped the old one. Delete the .hash first: a crash in
                # between must not leave a wrong .hash.
                each.hash_file.unlink(missing_ok=True)
                write_atomically(each.out, (Path(folder) / each.out.name).read_bytes())
                each.hash_file.write_text(each.state())
    return [each.out for each in builds]
