"""`aici node` and `aici cluster token` as a user runs them, without other machines."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aici_base.errors import UsageError
from aici_cli.sizes import parse_bytes
from tests.support.cli import AICI
from tests.support.processes import alive, descendants, wait_until


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folders = {name: str(tmp_path / name) for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")}
    return {**os.environ, **folders, "OMP_NUM_THREADS": "1"}


def run(environment: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*AICI, *args], env=environment, capture_output=True, text=True, timeout=120)


def test_the_token_is_made_once_and_never_printed(environment: dict[str, str]) -> None:
    made = run(environment, "cluster", "token")
    path = Path(made.stdout.strip())
    assert path.stat().st_mode & 0o777 == 0o600
    assert "made a new token" in made.stderr
    again = json.loads(run(environment, "cluster", "token", "--json").stdout)
    assert (again["path"], again["is_new"]) == (str(path), False)
    assert path.read_text().strip() not in made.stdout + made.stderr + json.dumps(again)


def test_a_node_joins_says_its_state_and_leaves(environment: dict[str, str]) -> None:
    missing = run(environment, "node", "join", "--name", "a")
    assert missing.returncode == 2
    assert "there is no cluster token" in missing.stderr
    run(environment, "cluster", "token")
    addresses = []
    for how in ("leave", "kill"):
        command = [*AICI, "node", "join", "--name", "a", "--memory", "1GiB", "--threads", "1", "--label", "gpu=no"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as daemon:
            assert daemon.stdout is not None
            addresses.append(daemon.stdout.readline().strip())
            state = json.loads(run(environment, "node", "status", "--name", "a", "--json").stdout)
            assert (state["address"], state["labels"], state["ray"]) == (addresses[-1], {"gpu": "no"}, "off")
            said = run(environment, "node", "status", "--name", "a").stdout
            assert said.startswith(f"node a at {addresses[-1].partition('#')[0]}: alone\n")
            below = descendants(daemon.pid)
            if how == "leave":
                assert run(environment, "node", "leave", "--name", "a").returncode == 0
            else:
                daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(20) == (0 if how == "leave" else -signal.SIGTERM)
            assert wait_until(lambda below=below: not alive(below), 10)
    assert addresses[0].partition("#")[2] == addresses[1].partition("#")[2]  # the key stays
    gone = run(environment, "node", "status", "--name", "a")
    assert gone.returncode == 3
    assert "no node daemon listens" in gone.stderr


@pytest.mark.parametrize("text", ["12", "GiB", "1.2.3GiB", "-1GiB", "0GiB", "1 parsec"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        parse_bytes(text, flag="--memory")


def test_without_a_cluster_there_is_no_ray() -> None:
    """Neither the server nor the daemon nor the driver of a cluster imports Ray: only the watcher process does."""
    modules = [
        "aici_cli.app",
        "aici_cli.node",
        "aici_engine.components",
        "aici_engine.server.api.serve",
        "aici_engine.cluster.cluster_driver",
        "aici_engine.cluster.node_daemon",
        "aici_engine.cluster.ray_head",
        "aici_engine.cluster.ray_members",
    ]
    program = f"import sys, {', '.join(modules)}; print([name for name in ('ray', 'zeroconf') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["10.0.0.1"], "the cluster's address '10.0.0.1' is not HOST:PORT"),
        (["--listen", "10.0.0.1"], "--listen '10.0.0.1' is not HOST:PORT"),
        (["--memory", "200MiB"], "--memory 200MiB leaves nothing for layers"),
        (["--memory", "12"], "--memory '12' is not a size"),
        (["--model", "./nowhere"], "nowhere"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_wrong_flag_is_refused_before_the_machine_is_measured(
    environment: dict[str, str], flags: list[str], said: str
) -> None:
    run(environment, "cluster", "token")
    done = run(environment, "node", "join", "--name", "a", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "measuring" not in done.stderr


def test_a_node_says_that_its_cluster_is_not_there(environment: dict[str, str]) -> None:
    run(environment, "cluster", "token")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        head = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [*AICI, "node", "join", head, "--name", "a", "--memory", "1GiB", "--threads", "1"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as daemon:
        assert daemon.stderr is not None
        told = next(line for line in daemon.stderr if "not joined" in line)
        assert told == f"the cluster at {head} is not joined yet: nobody listens there; the node keeps trying\n"
        status = run(environment, "node", "status", "--name", "a")
        assert (status.stdout.splitlines()[0].rpartition(": ")[2], status.stderr) == ("joining", told)
        assert json.loads(run(environment, "node", "status", "--name", "a", "--json").stdout)["trouble"] == told.strip()
        daemon.send_signal(signal.SIGTERM)
