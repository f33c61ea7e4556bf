"""Controllers in AssemblyScript: its compiler, from the project's own `node_modules` or through npx."""

import shutil
from pathlib import Path
from typing import Final

from aici_base.errors import ControllerError, UnavailableError
from aici_controllers.compilers import Command, run

PACKAGE: Final = "assemblyscript@0.28.20"
"""Pinned, since the compiler decides the bytes. A project that installed its own (`npm install`) is built with that."""

ENTRY: Final = "assembly/index.ts"

# `abort` is what the language calls when an assertion fails. It must be the project's own: hosts do not offer it.
FLAGS: Final = ("--optimize", "--runtime", "incremental", "--use", "abort=assembly/aici/abort", "--noColors")


def build_assemblyscript(folder: Path, out: Path) -> str:
    """The project in `folder` into the module `out`; returns the compiler's warnings."""
    wrong = f"{folder} does not compile"
    argv = [*compiler(folder), ENTRY, "--outFile", str(out.resolve()), *FLAGS]
    said = run(Command(argv=argv, cwd=folder, wrong=wrong))
    if not out.exists():
        raise ControllerError(f"{wrong}\n{said.strip()}")
    return said


def compiler(folder: Path) -> list[str]:
    """UnavailableError when there is neither the project's own compiler nor npx."""
    own = folder.resolve() / "node_modules" / ".bin" / "asc"
    if own.exists() and shutil.which("node"):
        return [str(own)]
    if not shutil.which("npx"):
        raise UnavailableError("node is not installed", hint="AssemblyScript needs node and npm")
    return ["npx", "--yes", "--loglevel=error", f"--package={PACKAGE}", "asc"]
