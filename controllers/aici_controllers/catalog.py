"""The controllers and the grammars that ship with aici, by name."""

import difflib
from pathlib import Path
from typing import Final

from aici_base.errors import NotFoundError, UnavailableError

SHIPPED: Final = ("choices", "declctrl", "grammar", "jsctrl", "json_schema", "pyctrl", "regex", "substring")
"""All that should be there. A guest whose interpreter could not be fetched when aici was built is not."""

SCRIPT_GUESTS: Final = {".js": "jsctrl", ".mjs": "jsctrl", ".py": "pyctrl", ".json": "declctrl"}
"""The shipped controllers whose argument is a program, by the suffixes of its files."""


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
    if name in SHIPPED:
        raise UnavailableError(
            f"the controller {name} was left out when aici was built: what it is made of could not be fetched",
            hint="`aici doctor` says what it needs; python -m aici_controllers.build in a checkout tries again",
        )
    raise NotFoundError(f"no shipped controller is called {name!r}", hint=_near(name, names))


def steps_schema_path() -> Path:
    """The JSON Schema of declarative steps, which the controller declctrl runs."""
    return Path(__file__).resolve().parent / "declctrl.schema.json"


def grammars_dir() -> Path:
    """Where the shipped grammars are: in the package, or beside it in a checkout."""
    here = Path(__file__).resolve()
    installed = here.parent / "grammars"
    return installed if installed.is_dir() else here.parents[2] / "grammars"


def grammar_names() -> list[str]:
    """Sorted."""
    return sorted(path.stem for path in grammars_dir().glob("*.y"))


def grammar_path(name: str) -> Path:
    """The file of the grammar `name`. NotFoundError names what there is instead."""
    names = grammar_names()
    if name not in names:
        raise NotFoundError(f"no shipped grammar is called {name!r}", hint=_near(name, names))
    return grammars_dir() / f"{name}.y"


def _near(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else f"shipped: {', '.join(names)}"
