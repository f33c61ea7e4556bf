"""Compiles the guests into `controllers/aici_controllers/guests/` when the wheel or the editable install is built, and
the SDK into `controllers/aici_controllers/objects/` for the wheel.

Runs in pip's isolated environment (which has ziglang, see pyproject.toml) or in the user's own; of aici it imports only
what needs no third-party package.
"""

import sys
import time
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GuestBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatch names these
        root = Path(self.root)
        folders = [str(root / "runtime"), str(root / "controllers")]
        sys.path[:0] = folders
        try:
            from aici_controllers.build import build_shipped
            from aici_controllers.sdk import ship_objects
        finally:
            del sys.path[: len(folders)]
        start = time.monotonic()
        modules = build_shipped(root / "controllers/guests", root / "controllers/aici_controllers/guests")
        ship_objects()
        if not modules:
            raise RuntimeError("no guest was built: controllers/guests is empty")
        names = ", ".join(path.stem for path in modules)
        print(f"guests: {names} ({time.monotonic() - start:.1f} s)", file=sys.stderr)
