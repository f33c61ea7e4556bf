"""`--replicas`: what is taken, and what is refused by name."""

import pytest

from aici_base.errors import UsageError
from aici_cli.replica_flags import replica_count
from tests.support.cli import aici


@pytest.mark.parametrize(("text", "least", "most"), [("1", 1, 1), ("3", 3, 3), ("1:4", 1, 4)])
def test_counts(text: str, least: int, most: int) -> None:
    count = replica_count(text, down_after_s=5.0)
    assert (count.least, count.most, count.down_after_s) == (least, most, 5.0)


@pytest.mark.parametrize("text", ["0", "2:1", "many", "1:", ":2", "-1", "0:2"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(UsageError, match="replicas"):
        replica_count(text, down_after_s=15.0)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--replicas", "2", "--spare-engine"], "has no spare engine"),
        (["--replicas", "2", "--device", "cuda"], "no replicas on a GPU"),
        (["--replicas", "2", "--stages", "tcp://10.0.0.2:7100#" + "a" * 64], "no replicas here"),
        (["--replicas", "2", "--engine", "vllm"], "has no replicas: vLLM computes it"),
        (["--replicas", "1:2", "--models-memory", "8GiB"], "no fixed part of the memory"),
        (["--replicas", "2", "--scale-down-after", "3"], "--scale-down-after needs --replicas A:B"),
    ],
)
def test_what_does_not_go_together(flags: list[str], says: str) -> None:
    done = aici("serve", "--port", "0", *flags)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr


def test_a_running_server_takes_no_replicas_of_a_benchmark() -> None:
    done = aici("bench", "serve", "--server", "http://127.0.0.1:9", "--replicas", "2")
    assert (done.returncode, "--replicas is for a started server" in done.stderr) == (2, True), done.stderr
