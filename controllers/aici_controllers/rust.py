"""Build controllers in Rust with cargo, for a target without an operating system."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aici_base.errors import ControllerError, UnavailableError
from aici_controllers.compilers import Command, run

TARGET: Final = "wasm32-unknown-unknown"


def build_rust(folder: Path, out: Path) -> str:
    """Build the package in `folder` (a Cargo.toml with crate-type cdylib) into the module `out`; return cargo's
    warnings. The folder `target` of the package is not touched."""
    require()
    with tempfile.TemporaryDirectory(prefix="aici-cargo-") as target:
        env = os.environ | environment(folder)
        said = run(Command(argv=command(folder, Path(target)), env=env, wrong=f"{folder} does not compile"))
        modules = sorted((Path(target) / TARGET / "release").glob("*.wasm"))
        if len(modules) != 1:
            raise ControllerError(
                f"{folder} makes {len(modules)} Wasm modules", hint='the one library needs crate-type = ["cdylib"]'
            )
        shutil.copyfile(modules[0], out)
    return "".join(f"{line}\n" for line in said.splitlines() if line.startswith("warning"))


def command(folder: Path, target: Path) -> list[str]:
    manifest = f"--manifest-path={folder / 'Cargo.toml'}"
    return ["cargo", "build", "--release", "--quiet", f"--target={TARGET}", f"--target-dir={target}", manifest]


def environment(folder: Path) -> Mapping[str, str]:
    """Return the environment in which the bytes do not depend on the folder or the user."""
    home = os.environ.get("CARGO_HOME") or Path.home() / ".cargo"
    remap = f"--remap-path-prefix={folder.resolve()}=. --remap-path-prefix={home}=cargo"
    return {"RUSTFLAGS": f"{remap} -C strip=symbols -C link-arg=-zstack-size=262144"}


def require() -> None:
    """Check for cargo and the target. Raise UnavailableError with what to install."""
    hint = f"install Rust, then: rustup target add {TARGET}"
    if not shutil.which("cargo") or not shutil.which("rustc"):
        raise UnavailableError("cargo is not installed", hint=hint)
    done = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=False)
    if not (Path(done.stdout.strip()) / "lib" / "rustlib" / TARGET).is_dir():
        raise UnavailableError(f"Rust's target {TARGET} is not installed", hint=f"rustup target add {TARGET}")
