"""Compile the guests into `controllers/aici_controllers/guests/` for the wheel and the editable install, the SDK
into `controllers/aici_controllers/objects/` for the wheel, the engine's kernels and the loop of the guests' processes,
which make the wheel platform-specific, and the console's page.

Runs in pip's isolated environment (with ziglang and Node, see pyproject.toml) or in the user's environment. Imports
only the modules of aici that need no third-party package.
"""

import sys
import time
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        folders = [str(root / name) for name in ("runtime", "controllers", "engine")]
        sys.path[:0] = folders
        try:
            from aici_controllers import guest_loop
            from aici_controllers.build import build_shipped
            from aici_controllers.sdk import ship_objects
            from aici_engine.native import build as native
            from aici_engine.server.console import build as console
        finally:
            del sys.path[: len(folders)]
        start = time.monotonic()
        modules = build_shipped(root / "controllers/guests", root / "controllers/aici_controllers/guests")
        ship_objects()
        if not modules:
            raise RuntimeError("no guest was built: controllers/guests is empty")
        names = ", ".join(path.stem for path in modules)
        print(f"guests: {names} ({time.monotonic() - start:.1f} s)", file=sys.stderr)
        libraries = [*native.build(), *guest_loop.build()]
        console.build()
        # A source distribution fits every platform. An editable install already has the libraries of this machine in
        # place.
        if libraries and self.target_name == "wheel" and version == "standard":
            build_data["artifacts"] += [f"/{path.relative_to(root)}" for path in libraries]
            build_data |= {"pure_python": False, "tag": native.wheel_tag()}
