"""The table of the sandbox: what native code in a guest's process tries, and what becomes of each attempt.

    python -m tests.runtime.walls            as this user, and as nobody if root runs the command
    python -m tests.runtime.walls --json     the outcomes as this user

The code runs in the real process of a guest, in the real sandbox: see `tests/runtime/support/hostile_runtime.py`.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import orjson

from aici_base.ids import SeqId
from aici_runtime.client import Runtime
from aici_runtime.wire import MidOp
from tests.runtime.support import tokenizer, wat
from tests.runtime.support.hostile_runtime import MARK, NO_NAMESPACES, HostileConfig
from tests.runtime.support.native_code import ATTEMPTS
from tests.runtime.support.processes import bind

NOBODY = 65534
_PATIENCE_MS = 60_000
_ROOT = Path(__file__).parents[2]


def config(folder: Path, *extra_args: str) -> HostileConfig:
    """Return settings for a hostile runtime with its cache in `folder`."""
    return HostileConfig(
        tokenizer=tokenizer.byte_level(folder),
        cache_dir=folder / "cache",
        max_step_time_ms=_PATIENCE_MS,
        extra_args=("--max-instances=8", *extra_args),
    )


def attempt(runtime: Runtime, seq_id: SeqId, names: Sequence[str]) -> dict[str, str]:
    """Bind a guest and let it make these attempts. Return the outcomes."""
    bind(runtime, seq_id, module(names))
    runtime.send_mid([MidOp(seq_id)])
    return outcomes(runtime.recv_mid().seqs[seq_id].logs)


def module(names: Sequence[str]) -> bytes:
    """Return a guest that makes these attempts at every step."""
    guest = wat.Module()
    return guest.build(mid=guest.log((MARK + orjson.dumps(names)).decode()) + guest.answer(wat.SAMPLE))


def outcomes(logs: str) -> dict[str, str]:
    """Return the outcomes in the log of a guest."""
    read: dict[str, str] = orjson.loads(logs.strip().splitlines()[-1])
    return read


def outcomes_here() -> dict[str, str]:
    """Return the outcomes of all attempts, with a runtime of this user."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, Runtime(config(Path(folder))) as runtime:
        runtime.wait_ready()
        return attempt(runtime, SeqId(1), list(ATTEMPTS))


def outcomes_of(user: int, *, has_namespaces: bool = True) -> dict[str, str]:
    """Return the outcomes of all attempts, with a runtime of a user. Root alone may name another user."""
    environment = dict(os.environ) if has_namespaces else os.environ | {NO_NAMESPACES: "1"}
    command = [sys.executable, "-m", "tests.runtime.walls", "--json"]
    if user != os.geteuid():
        # The interpreter may lie in a folder of root's. The sandbox takes this capability from guests, as all others.
        may_read = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *may_read, *command]
    done = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, env=environment)
    read: dict[str, str] = orjson.loads(done.stdout)
    return read


def main() -> None:
    if "--json" in sys.argv:
        sys.stdout.buffer.write(orjson.dumps(outcomes_here()))
        return
    users = {"root": 0, "a user": NOBODY} if os.geteuid() == 0 else {"a user": os.geteuid()}
    columns = {}
    for name, user in users.items():
        columns[f"as {name}"] = outcomes_of(user)
        columns[f"as {name}, without namespaces"] = outcomes_of(user, has_namespaces=False)
    print("| attempt |", " | ".join(columns), "|")
    print("|---|" + "---|" * len(columns))
    for name in ATTEMPTS:
        print(f"| {name} |", " | ".join(column[name] for column in columns.values()), "|")


if __name__ == "__main__":
    main()
