"""Clients whose pinned requirements differ from ours: each client has a venv, which is made once per machine."""

import fcntl
import subprocess
import sys
from pathlib import Path

from aici_base.cache_files import default_cache_dir


def client_python(*requirements: str, folder: Path | None = None) -> Path:
    """Return the interpreter of a venv with the pinned `requirements`, in `folder` or in a folder of the cache. The
    first call on a machine downloads the packages."""
    if folder is None:
        folder = default_cache_dir() / "clients" / "-".join(requirements).replace("==", "-")
    folder.parent.mkdir(parents=True, exist_ok=True)
    python, done = folder / "bin" / "python", folder / "done"
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *requirements], check=True)
            done.touch()
    return python
