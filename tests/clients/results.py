"""The last results of each client, in a file beside the clients' environments."""

import fcntl
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aici_base.cache_files import default_cache_dir
from tests.clients.client import Check, Client


def keep(client: Client, checks: Sequence[Check]) -> None:
    """Replace the results of a client."""
    entry = {"packages": client.environment.packages, "checks": [asdict(check) for check in checks]}
    with _file().with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _file().write_text(json.dumps(_read() | {client.name: entry}, indent=1))


def kept(clients: Iterable[Client]) -> dict[str, list[Check]]:
    """Return the results of the clients, without those of other versions."""
    entries = _read()
    return {
        client.name: [Check(**check) for check in entries[client.name]["checks"]]
        for client in clients
        if client.name in entries and entries[client.name]["packages"] == list(client.environment.packages)
    }


def _file() -> Path:
    return default_cache_dir() / "clients" / "results.json"


def _read() -> dict[str, Any]:
    if not _file().exists():
        return {}
    entries: dict[str, Any] = json.loads(_file().read_text())
    return entries
