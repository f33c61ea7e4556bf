"""Clients whose pinned requirements differ from ours: each client has a venv, which is made once per machine."""

import fcntl
import subprocess
import sys
from pathlib import Path

from aici_base.cache_files import default_cache_dir


def client_folder(*requirements: str) -> Path:
    """Return the folder of a client's environment, with the file `done` once it is complete."""
    name = "-".join(requirements).replace("==", "-").replace("/", "-")
    return default_cache_dir() / "clients" / name


def client_python(*requirements: str) -> Path:
    """Return the interpreter of a venv with the pinned `requirements`. The first call on a machine downloads the
    packages."""
    folder = client_folder(*requirements)
    folder.parent.mkdir(parents=True, exist_ok=True)
    python, done = folder / "bin" / "python", folder / "done"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *requirements], check=True)
            done.touch()
    return python
