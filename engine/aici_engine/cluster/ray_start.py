"""Command lines that start Ray on a machine: the head of a cluster, or one more node. Imports no Ray.

Ray carries control only, so everything that can be switched off is: dashboard, log monitor, usage statistics, and
processors (nothing is computed in Ray's own processes).
"""

import contextlib
import importlib.util
import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from aici_base.errors import UnavailableError
from aici_engine.cluster.kept_process import KeptProcess
from aici_engine.private_folder import PrivateFolder

READY_S = 120.0  # two seconds on a quiet machine, more than a minute on a very busy one
_CONNECT_S = 1.0
_STORE_BYTES = 80_000_000  # the least that Ray takes
MIB_RESOURCE = "aici_mib"
"""The name of a node's memory among Ray's resources, in MiB."""


def check_installed() -> None:
    """Raise UnavailableError if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UnavailableError("ray is not installed", hint="pip install 'aici[cluster]'")


def environment(ray_token: str) -> dict[str, str]:
    """Return variables for a process that speaks to Ray. The token is derived from the cluster's token."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": ray_token, "RAY_USAGE_STATS_ENABLED": "0"}


def ray_folder() -> PrivateFolder:
    """Return a folder for the files of one machine's Ray. Ray adds up to 70 bytes to its path."""
    return PrivateFolder("aici-ray-")


def head(folder: PrivateFolder, ray_token: str, *, address: str, state: Path) -> KeptProcess:
    """Return the process that keeps the head of a cluster at `address`, HOST:PORT.

    `state`: a folder for the list of nodes, so that the nodes stay when the head starts again.
    """
    host, _, port = address.rpartition(":")
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    stored = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(state)}
    return _kept(
        ["--head", f"--port={port}", f"--node-ip-address={host}", "--include-dashboard=false"],
        folder,
        {**environment(ray_token), **stored},
    )


def node(
    folder: PrivateFolder, ray_token: str, *, head_address: str, host: str, mib: int, labels: Mapping[str, str]
) -> KeptProcess:
    """Return the process that keeps this machine a node of the cluster whose head is at `head_address`, HOST:PORT."""
    pairs = ",".join(f"{key}={value}" for key, value in labels.items())
    flags = [
        f"--address={head_address}",
        f"--node-ip-address={host}",
        f"--labels={pairs}",
        f"--resources={json.dumps({MIB_RESOURCE: mib})}",
    ]
    return _kept(flags, folder, environment(ray_token), head_address)


def why_not(last_words: str) -> str:
    """Return why Ray has not started, from its last lines.

    >>> why_not("Traceback\\nAuthenticationError: InvalidAuthToken: ...")
    'the cluster tokens differ: copy the token file of the server to this machine'
    """
    if "InvalidAuthToken" in last_words:
        return "the cluster tokens differ: copy the token file of the server to this machine"
    lines = [line for line in last_words.splitlines() if line.strip()]
    return f"Ray has ended: {lines[-1].strip()[:300]}" if lines else "Ray has ended"


def can_connect(address: str) -> bool:
    """Return whether somebody listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S):
        return True
    return False


def _kept(
    flags: list[str], folder: PrivateFolder, variables: Mapping[str, str], wait_for: str | None = None
) -> KeptProcess:
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    command += ["--include-log-monitor=false", f"--temp-dir={folder.path}"]
    command += ["--num-cpus=0", "--num-gpus=0", f"--object-store-memory={_STORE_BYTES}", *flags]
    return KeptProcess(
        command,
        listen=lambda line: "up" if "Ray runtime started" in line else None,
        ready_timeout_s=READY_S,
        environment=variables,
        # `ray start` waits without an end for a head that does not listen.
        may_start=lambda: wait_for is None or can_connect(wait_for),
        quiet=True,
    )
