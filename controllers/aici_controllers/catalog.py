"""The shipped controllers and grammars, by name."""

import difflib
from hashlib import sha256
from pathlib import Path
from typing import Final

from aici_base.errors import NotFoundError, UnavailableError

SHIPPED: Final = ("choices", "declctrl", "grammar", "jsctrl", "json_schema", "pyctrl", "regex", "substring")
"""All shipped controllers. A build without network leaves out controllers whose interpreter must be fetched."""

SCRIPT_GUESTS: Final = {".js": "jsctrl", ".mjs": "jsctrl", ".py": "pyctrl", ".json": "declctrl"}
"""The shipped controllers that run programs, by the suffix of the program's file."""

DECLARATIVE: Final = ("choices", "grammar", "json_schema", "regex", "substring")
"""The shipped controllers that run no program of the user: their guests share processes, those of each user apart."""


def pooled_module_ids() -> tuple[str, ...]:
    """Return the module ids of the declarative controllers that are built (`RuntimeConfig.pooled`)."""
    paths = (guests_dir() / f"{name}.wasm" for name in DECLARATIVE)
    return tuple(sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file())


def guests_dir() -> Path:
    """Return the folder of the built controllers. The folder may be missing."""
    return Path(__file__).resolve().parent / "guests"


def guest_names() -> list[str]:
    """Return the names of the built controllers, sorted. Without a build the list is empty."""
    return sorted(path.stem for path in guests_dir().glob("*.wasm"))


def guest_path(name: str) -> Path:
    """Return the module of the controller `name`. The hint of NotFoundError has the nearest names."""
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
            f"the controller {name} was left out of the build: the interpreter's sources could not be fetched",
            hint="`aici doctor` lists the sources; python -m aici_controllers.build in a checkout tries again",
        )
    raise NotFoundError(f"no shipped controller is called {name!r}", hint=_near(name, names))


def readme_path(name: str) -> Path:
    """Return the README of a shipped controller: in the package, or in a checkout beside the package."""
    here = Path(__file__).resolve()
    installed = here.parent / "readmes" / f"{name}.md"
    return installed if installed.is_file() else here.parents[1] / "guests" / name / "README.md"


def steps_schema_path() -> Path:
    """Return the file with the JSON Schema of declarative steps, the programs of declctrl."""
    return Path(__file__).resolve().parent / "declctrl.schema.json"


def grammars_dir() -> Path:
    """Return the folder of the shipped grammars: in the package, or in a checkout beside the package."""
    here = Path(__file__).resolve()
    installed = here.parent / "grammars"
    return installed if installed.is_dir() else here.parents[2] / "grammars"


def grammar_names() -> list[str]:
    """Return the names of the shipped grammars, sorted."""
    return sorted(path.stem for path in grammars_dir().glob("*.y"))


def grammar_path(name: str) -> Path:
    """Return the file of the grammar `name`. The hint of NotFoundError has the nearest names."""
    names = grammar_names()
    if name not in names:
        raise NotFoundError(f"no shipped grammar is called {name!r}", hint=_near(name, names))
    return grammars_dir() / f"{name}.y"


def _near(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else f"shipped: {', '.join(names)}"
