"""`aici batch` with the real model, killed by SIGKILL again and again: every line has exactly one result.

python -m tests.cli.kill_batch --lines 2000 --kills 3
"""

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.batch_lines import Json, chat_line, jsonl, results
from tests.support.cli import AICI
from tests.support.processes import wait_until

_PATIENCE_S = 3600.0


def kill_and_go_on(folder: Path, *, num_lines: int, num_kills: int) -> list[int]:
    """Return the numbers of results that were in the file after every kill, and at the end.

    Raises AssertionError if a line has no result, or two.
    """
    given, out = folder / "in.jsonl", folder / "out.jsonl"
    given.write_bytes(jsonl(*(_line(number) for number in range(num_lines))))
    command = [*AICI, "batch", str(given), "-o", str(out)]
    env = {name: value for name, value in os.environ.items() if name != "AICI_API_BASE"}
    numbers = []
    for kill in range(1, num_kills + 1):
        wanted = kill * num_lines // (num_kills + 1)
        with subprocess.Popen(command, env=env) as process:
            try:
                enough = wait_until(lambda wanted=wanted: _count(out) >= wanted, _PATIENCE_S)
            finally:
                process.kill()
        assert enough
        numbers.append(_count(out))
    done = subprocess.run(command, env=env, check=False)
    assert done.returncode == 0
    found = results(out.read_bytes())
    assert found.keys() == {f"r{number}" for number in range(num_lines)}
    assert all(each["response"]["status_code"] == 200 for each in found.values())
    return [*numbers, len(found)]


def _line(number: int) -> Json:
    if number % 2:
        return chat_line(f"r{number}", f"Say {number}.")
    body = {"prompt": f"Number {number} is", "max_tokens": 2}
    return {"custom_id": f"r{number}", "method": "POST", "url": "/v1/completions", "body": body}


def _count(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=3)
    given = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kill-batch-") as folder:
        numbers = kill_and_go_on(Path(folder), num_lines=given.lines, num_kills=given.kills)
    *after_kills, end = numbers
    print(f"results after kills: {after_kills}; at the end {end}, each once; {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
