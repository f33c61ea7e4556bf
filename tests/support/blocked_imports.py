"""Packages that look as if they were installed, and note each attempt to import them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_NAMES = ("torch", "transformers")
_STUB = """
import os, sys
with open({log!r}, "a") as log:
    log.write(f"{{__name__}} in {{os.getpid()}}: {{sys.argv}}\\n")
raise ModuleNotFoundError("No module named " + repr(__name__), name=__name__)
"""


@dataclass(frozen=True, slots=True)
class BlockedImports:
    """`environment`: the variables by which a process and its children find the blocks. `folder` must be empty."""

    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        for name in _NAMES:
            package = self.folder / name
            package.mkdir(parents=True, exist_ok=True)
            (package / "__init__.py").write_text(_STUB.format(log=str(self._log)))
        return {"PYTHONPATH": os.pathsep.join([str(self.folder), *os.environ.get("PYTHONPATH", "").split()])}

    @property
    def attempts(self) -> list[str]:
        """What was imported, by which process."""
        return self._log.read_text().splitlines() if self._log.is_file() else []

    @property
    def _log(self) -> Path:
        return self.folder / "attempts"
