"""`aici serve` starts with a full disk under the cache folder and the stores, and serves what needs no disk."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.engine.support import write_tiny_model
from tests.support.server import serving

_FILL = """\
mount -t tmpfs -o size=64k,nr_inodes=16 tmpfs "$0"
for number in $(seq 20); do head -c 8k /dev/zero > "$0/$number"; done 2> /dev/null
exec "$@"
"""


def with_full_disk(folder: Path) -> list[str]:
    """Return the beginning of a command that runs with a full disk at `folder`, which no other process sees."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", "--mount", *user, "sh", "-c", _FILL, str(folder)]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets no process mount a disk of its own")
    return command


def test_a_server_starts_on_a_full_disk(tmp_path: Path) -> None:
    model, full = tmp_path / "model", tmp_path / "full"
    model.mkdir()
    full.mkdir()
    places = {
        "AICI_CACHE_DIR": str(full),
        "AICI_STORE_DIR": str(full / "modules"),
        "AICI_RESPONSES_FILE": str(full / "responses.db"),
        "AICI_BATCHES_FILE": str(full / "batches.db"),
    }
    command = with_full_disk(full)
    with serving("--model", str(write_tiny_model(model, num_heads=2)), within=command, env=places) as server:
        with urlopen(f"{server.url}/health", timeout=30) as answer:
            problems = json.load(answer)["problems"]
        assert [problem.partition(" are kept in memory")[0] for problem in problems[:2]] == [
            "responses",
            "files and batches",
        ]
        assert "regex" in problems[2]
        body = json.dumps({"prompt": "Hi", "max_tokens": 2}).encode()
        asked = Request(f"{server.url}/v1/completions", body, {"Content-Type": "application/json"})
        with urlopen(asked, timeout=60) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 2
    told = "".join(server.said)
    for what in ("responses are kept in memory", "requests with these controllers fail", "batches are kept in memory"):
        assert told.count(what) == 1, told
