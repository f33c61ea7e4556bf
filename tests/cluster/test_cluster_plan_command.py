"""`aici cluster plan` as a user runs it."""

import json

from tests.support.cli import aici
from tests.support.model import default_model_dir


def test_a_small_node_gets_fewer_layers() -> None:
    nodes = ["--node", "small=60MB:10GB/s", "--node", "big=1GiB:10GB/s:0.5ms:80GFLOP/s"]
    done = aici("cluster", "plan", str(default_model_dir()), *nodes, "--dtype", "int4", "--context", "512", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert [stage["node"] for stage in plan["stages"]] == ["small", "big"]
    small, big = plan["stages"]
    assert 0 < small["last"] < big["last"] - big["first"]
    assert small["weight_bytes"] + small["cache_bytes"] + small["work_bytes"] <= small["budget_bytes"] == 60_000_000
    assert [speed["batch"] for speed in plan["speed"]] == [1, 16]


def test_the_table_is_for_people() -> None:
    done = aici("cluster", "plan", str(default_model_dir()), "--node", "a=1GiB:10GB/s", "--node", "b=1GiB:10GB/s")
    assert done.returncode == 0, done.stderr
    assert "A single request gains no speed from more nodes" in done.stdout
    assert "dtype auto" in done.stdout


def test_it_says_how_much_is_missing() -> None:
    done = aici("cluster", "plan", str(default_model_dir()), "--node", "a=60MB:10GB/s", "--node", "b=60MB:10GB/s")
    assert done.returncode == 2
    assert "short by" in done.stderr
    assert "of 57.2" in done.stderr


def test_a_node_in_other_words_is_refused() -> None:
    done = aici("cluster", "plan", str(default_model_dir()), "--node", "a=60MB:10furlongs")
    assert done.returncode == 2
    assert "'10furlongs' is no value with a unit" in done.stderr
    assert "hint: write NAME=12GiB:25GB/s" in done.stderr
