"""Build controllers in AssemblyScript with the compiler from the project's `node_modules`, or through npx."""

import shutil
from pathlib import Path
from typing import Final

from aici_base.errors import ControllerError, UnavailableError
from aici_controllers.compilers import Command, run

PACKAGE: Final = "assemblyscript@0.28.20"
"""Pinned, since the version of the compiler decides the bytes. A compiler installed in the project (`npm install`)
goes first."""

ENTRY: Final = "assembly/index.ts"

# AssemblyScript calls `abort` when an assertion fails. The project must define the function: no runtime offers it.
FLAGS: Final = ("--optimize", "--runtime", "incremental", "--use", "abort=assembly/aici/abort", "--noColors")


def build_assemblyscript(folder: Path, out: Path) -> str:
    """Build the project in `folder` into the module `out`; return the compiler's warnings."""
    wrong = f"{folder} does not compile"
    argv = [*compiler(folder), ENTRY, "--outFile", str(out.resolve()), *FLAGS]
    said = run(Command(argv=argv, cwd=folder, wrong=wrong))
    if not out.exists():
        raise ControllerError(f"{wrong}\n{said.strip()}")
    return said


def compiler(folder: Path) -> list[str]:
    """Return the compiler's command line. Raise UnavailableError if the project has no compiler and npx is missing."""
    own = folder.resolve() / "node_modules" / ".bin" / "asc"
    if own.exists() and shutil.which("node"):
        return [str(own)]
    if not shutil.which("npx"):
        raise UnavailableError("node is not installed", hint="AssemblyScript needs node and npm")
    return ["npx", "--yes", "--loglevel=error", f"--package={PACKAGE}", "asc"]
