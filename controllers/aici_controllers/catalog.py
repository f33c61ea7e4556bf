"""The controllers that ship with aici, by name."""

import difflib
from pathlib import Path

from aici_runtime.errors import NotFoundError, UnavailableError


def guests_dir() -> Path:
    """Where the built guests are; it need not exist."""
    return Path(__file__).resolve().parent / "guests"


def guest_names() -> list[str]:
    """Sorted; empty when the guests were never built."""
    return sorted(path.stem for path in guests_dir().glob("*.wasm"))


def guest_path(name: str) -> Path:
    """The module of the controller `name`. NotFoundError names what there is instead."""
    names = guest_names()
    if name in names:
        return guests_dir() / f"{name}.wasm"
    if not names:
        raise UnavailableError(
            "the shipped controllers are not built",
            hint="pip install 'aici[build]', then python -m aici_controllers.build",
        )
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"shipped: {', '.join(names)}"
    raise NotFoundError(f"no shipped controller is called {name!r}", hint=hint)
