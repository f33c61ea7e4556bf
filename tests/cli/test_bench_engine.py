"""`aici bench engine` compares engines with the same work, and reports engines that are missing or fail. The values
of the figures are not tested."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aici_base.errors import NotFoundError
from aici_cli.bench.engines.compare import decode_rate
from aici_cli.bench.engines.process import BenchEngineError, Process
from aici_cli.bench.engines.report import print_tables
from aici_cli.bench.peers import Kind, find_peer, known_peers
from aici_cli.bench.quality import Measured
from tests.engine.support import write_tiny_model
from tests.support.cli import AICI, aici
from tests.support.processes import alive, descendants, wait_until

FAKE = """#!{python}
import json, os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "run" and len(asked["job"]["prompts"]) > 1:
        print("out of luck", file=sys.stderr)
        os._exit(3)
    times = [[0.5, 1.0, 1.5][: asked["job"].get("num_new")]]
    answer = {{"version": "1", "load_s": 0.5, "times": times, "tokens": [[1] * len(times[0])], "child": child.pid}}
    print(json.dumps(answer), flush=True)
"""
"""A fake engine: speaks the protocol, has a child that only a signal ends, and exits at the second prompt."""


@pytest.fixture
def fake(tmp_path: Path) -> str:
    path = tmp_path / "python"
    path.write_text(FAKE.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"), context=4096)


def test_engines_in_turn(tmp_path: Path, model: Path, fake: str) -> None:
    picture = tmp_path / "engine.svg"
    (tmp_path / "random.py").write_text("a file of the user's")
    engines = ["--dtype", "float32", "--peer", "hf:float32", "--peer", "ctranslate2=/no/such/python"]
    work = ["--batch", "1", "--batch", "3", "--prompt-tokens", "20", "--num-tokens", "12", "--rounds", "2"]
    done = aici(
        "bench", "engine", "--model", str(model), *engines, "--peer", f"vllm={fake}", *work, "--threads", "1",
        "--json", "--plot", str(picture), env={"AICI_CACHE_DIR": str(tmp_path)}, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    speeds = {(row["engine"], row["batch"]): row for row in rows if row["measure"] == "speed"}
    assert set(speeds) == {("aici", 1), ("aici", 3), ("hf", 1), ("hf", 3), ("vllm", 1)}
    for row in speeds.values():
        assert len(row["prefill_rounds"]) == len(row["decode_rounds"]) == 2
        assert row["same_first_tokens"] == (row["engine"] != "vllm")
    # The fake needs half a second for 20 prompt tokens, and a second for two more tokens.
    assert (speeds["vllm", 1]["prefill_tokens_per_s"], speeds["vllm", 1]["decode_tokens_per_s"]) == (40, 2)
    assert speeds["hf", 3]["decode_best_peer"] == "hf float32"
    assert speeds["hf", 3]["decode_to_best_peer"] == 1
    costs = {row["engine"]: row for row in rows if row["measure"] == "costs"}
    assert "No such file" in costs["ctranslate2"]["error"]
    assert costs["vllm"]["error"] == "out of luck"
    for name in ("aici", "hf"):
        assert not costs[name]["error"]
        assert 1 << 20 < costs[name]["now_bytes"] <= costs[name]["peak_bytes"] < 1 << 40
        assert 0 < costs[name]["load_s"] < costs[name]["start_s"]
    assert costs["aici"]["limit_tokens_per_s"] > 0
    assert "<svg" in picture.read_text()


def test_profile_and_prefix_of_our_engine(model: Path) -> None:
    work = ["--batch", "2", "--prompt-tokens", "8", "--num-tokens", "5", "--rounds", "1", "--threads", "1"]
    done = aici("bench", "engine", "--model", str(model), "--profile", "--prefix", *work, "--json")
    assert done.returncode == 0, done.stderr
    *profiles, chat, system = json.loads(done.stdout)
    assert [row["kind"] for row in profiles] == ["greedy", "top-k", "regex"]
    for row in profiles:
        assert row["num_steps"] >= 4  # the last step may be reported before the step is counted
        assert row["phases_s"]["forward"] > 0 < row["overhead_s"]
    # Only with a controller, a step has a round trip to the runtime.
    assert profiles[2]["phases_s"]["round"] > 10 * profiles[0]["phases_s"]["round"]
    assert [turn["first_s"] > 0 < turn["second_s"] for turn in chat["turns"]] == [True]
    assert 0 < system["pages"] < system["pages_apart"] / 4


def test_quality(model: Path) -> None:
    dtypes = ["--dtype", "float32", "--dtype", "bfloat16", "--num-tokens", "600"]
    done = aici("bench", "quality", "--model", str(model), *dtypes, "--json")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert "left out: keys and values in int8 need the kernels" in done.stderr  # the model's heads are too small
    # Windows of 512 tokens: the first token of every window has no score.
    assert first["tokens"] == second["tokens"] == 600 - 2
    assert (first["perplexity_ratio"], first["same_likeliest"], first["same_greedy"]) == (1, 1, 48)
    assert second["perplexity_ratio"] == pytest.approx(1, rel=0.05)
    assert 0.5 < second["same_likeliest"] < 1


def test_quality_in_figures() -> None:
    first = Measured(logprobs=[-1.0, -3.0], likeliest=[1, 2], greedy=[[5, 6, 7], [5, 6, 7]])
    other = Measured(logprobs=[-2.0, -4.0], likeliest=[1, 3], greedy=[[5, 6, 7], [5, 8, 7]])
    compared = other.compared(first)
    assert compared["perplexity"] == pytest.approx(math.exp(3))
    assert compared["perplexity_ratio"] == pytest.approx(math.e)
    assert (compared["same_likeliest"], compared["same_greedy"]) == (0.5, 2)


def test_wrong_engines_are_refused() -> None:
    for arguments, says in (
        (["--peer", "abacus"], "no engine is called 'abacus'"),
        (["--peer", "abacus.py"], "no peer file at abacus.py"),
        (["--dtype", "float7"], "no dtype is called 'float7'"),
        (["--random", "rwkv"], "no random model is called 'rwkv'"),
        (["--dtype", "none", "--peer", "none"], "nothing to measure"),
        (["--kernels", "abacus"], "no kernels are called 'abacus'"),
        (["--profile", "--peer", "hf"], "measure only our engine"),
        (["--plot", "engine.gif"], "use a file name with .svg or .png"),
    ):
        done = aici("bench", "engine", *arguments)
        assert done.returncode == 2
        assert says in done.stderr


@pytest.mark.parametrize("kind", ["engines", "masks"])
def test_an_installed_package_has_no_peers_and_says_where_they_are(kind: Kind, tmp_path: Path) -> None:
    assert known_peers(kind, tmp_path) == {}
    with pytest.raises(NotFoundError, match="no engine is called 'vllm': this installation has no peers") as error:
        find_peer(kind, "vllm", tmp_path)
    assert f"tests/peers/{kind} of a checkout: --peer FILE.py" in error.value.hint


@pytest.mark.parametrize("kind", ["engines", "masks"])
def test_each_peer_of_the_checkout_defines_what_the_benchmark_needs(kind: Kind) -> None:
    wanted = {"engines": {"NAME", "PACKAGES", "FORMS", "Engine"}, "masks": {"NAME", "PACKAGE", "INSTALL", "Engine"}}
    assert len(known_peers(kind)) == {"engines": 5, "masks": 3}[kind]
    for name, peer in known_peers(kind).items():
        assert not wanted[kind] - set(vars(peer)), name
        assert find_peer(kind, peer.__file__).__file__ == peer.__file__


def test_no_engine_could_be_measured(model: Path) -> None:
    done = aici("bench", "engine", "--model", str(model), "--dtype", "none", "--peer", "vllm=/no/such/python")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: no engine was measured; vllm bfloat16: cannot run /no/such/python" in done.stderr


def test_an_engine_process_ends_with_its_children(fake: str) -> None:
    with Process([fake], limit_s=60) as process:
        child = process.ask("version", {})["child"]
        assert child in descendants(os.getpid())
        assert process.memory()[0] > 0
    assert wait_until(lambda: not alive({child}), timeout_s=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(tmp_path: Path, model: Path, fake: str, number: int) -> None:
    command = [*AICI, "bench", "engine", "--model", str(model), "--dtype", "none", "--peer", f"vllm={fake}"]
    command += ["--rounds", "1000000", "--batch", "1"]
    env = os.environ | {"AICI_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as bench:
        assert bench.stderr is not None
        assert any("1000000 rounds" in line for line in bench.stderr)
        below = descendants(bench.pid)
        assert below
        bench.send_signal(number)
        assert bench.wait() in (-number, 128 + number)
    assert wait_until(lambda: not alive(below), timeout_s=60)


def test_an_engine_process_without_a_reply_times_out() -> None:
    with (
        pytest.raises(BenchEngineError, match=r"no reply to load within 0\.2 s"),
        Process([sys.executable, "-c", "import signal; signal.pause()"], limit_s=0.2) as process,
    ):
        process.ask("load", {})


def test_decoding_counts_while_all_decode() -> None:
    alone = [float(second) for second in range(2, 6)]
    late = [0.5 + second for second in range(3, 7)]
    assert decode_rate([alone]) == 1
    assert decode_rate([alone, late]) == 2
    assert decode_rate([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]) == 0
    # Tokens before the first token of the other sequence are slow and do not count.
    assert decode_rate([[0.0, 4.0, 5.0, 6.0], [4.0, 5.0, 6.0]]) == 2


def test_tables_of_results(capsys: pytest.CaptureFixture[str]) -> None:
    head = {"engine": "aici", "form": "float32"}
    speed = {"measure": "speed", "batch": 1, "prefill_tokens_per_s": 90.4, "prefill_to_best_peer": 1.5}
    speed |= {"decode_tokens_per_s": 10.0, "decode_to_best_peer": None, "step_ms": 100.0, "same_first_tokens": 0.5}
    costs = {"measure": "costs", "version": "1", "start_s": 1.0, "load_s": 2.0, "now_bytes": 3e6, "peak_bytes": 4e6}
    costs |= {"error": "out of luck", "limit_tokens_per_s": 15.0}
    print_tables([head | speed, head | costs], cast("Any", SimpleNamespace(device="cpu", threads=2, rounds=3)), 2e10)
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["aici", "float32", "1", "90", "1.50", "10.0", "100.00", "50%", "1.50"] in said
    assert ["aici", "float32", "1", "1.0", "2.0", "3", "4"] in said
    assert ["aici", "float32:", "out", "of", "luck"] in said
