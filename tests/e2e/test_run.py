"""`aici run` as a user runs the command: a process, the default model, the real runtime, Wasm guests."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import aici
from tests.support.guests import build_test_guest
from tests.support.large_module import padded
from tests.support.warm import warm_aici

pytestmark = pytest.mark.e2e

ULTIMATE = "The answer to life, the universe and everything is "


def document(*args: str, stdin: str = "") -> dict[str, Any]:
    done = warm_aici("run", "--json", *args, stdin=stdin)
    assert done.returncode == 0, done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def test_a_regex_prints_only_the_match() -> None:
    done = aici("run", "--regex", r"\d\d", ULTIMATE)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d\d", done.stdout)
    assert done.stderr == ""


def test_a_store_that_cannot_be_written_is_replaced_for_this_run() -> None:
    """Nobody can make a folder in /proc, root neither."""
    done = aici("run", "--regex", r"\d\d", ULTIMATE, env={"AICI_STORE_DIR": "/proc/aici"})
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d\d", done.stdout)
    [line] = done.stderr.splitlines()
    assert line == "/proc/aici cannot be written: regex is compiled in a temporary folder, each time"


def test_json_has_every_field() -> None:
    out = document("--regex", r"\d\d", "--log", ULTIMATE)
    assert re.fullmatch(r"\d\d", out["text"])
    assert bytes.fromhex("".join(token["bytes"] for token in out["tokens"])).decode() == out["text"]
    assert {token["origin"] for token in out["tokens"]} == {"sampled"}
    assert out["finish_reason"] == "aici-stop"
    sampled = len(out["tokens"])
    assert out["usage"] == {
        "prompt_tokens": out["usage"]["prompt_tokens"],
        "sampled_tokens": sampled,
        "ff_tokens": 0,
        "cost": 2 * sampled,
    }
    assert out["usage"]["prompt_tokens"] > 5
    assert 0 < out["timings"]["first_token_s"] <= out["timings"]["total_s"]
    assert "regex constraint" in out["logs"]
    assert out["variables"] == {}
    assert out["error"] is None


def test_explain_shows_what_the_mask_refused() -> None:
    flags = ["--explain", "--explain-top", "1", "--regex", "[A-Z]{2}", "The capital of France is"]
    done = warm_aici("run", *flags)
    assert done.returncode == 0, done.stderr
    title, *steps, end = [line for line in done.stdout.splitlines() if not line.startswith("log ")]
    assert title.split()[:2] == ["step", "token"]
    assert re.fullmatch(r"""sampled  "[A-Z]+" +(<0.1|[\d.]+)% +[\d.]+% +\d+  refused " Paris" [\d.]+%""", steps[0])
    assert re.fullmatch(r'ended    aici-stop: "[A-Z]{2}"', end)
    lines = [json.loads(line) for line in warm_aici("run", "--json", *flags).stdout.splitlines()]
    [wanted] = next(line for line in lines if line["event"] == "token")["explanation"]["likeliest"]
    assert (wanted["text"], wanted["allowed"]) == (" Paris", False)
    assert f'"{lines[-1]["text"]}"' in end


def test_explain_top_needs_explain() -> None:
    done = warm_aici("run", "--explain-top", "2", "Hello")
    assert (done.returncode, done.stdout) == (2, "")
    assert "add --explain" in done.stderr


def test_a_piped_prompt_gives_the_same_as_an_argument() -> None:
    greedy = ["--regex", "[a-z]{3,9}", "--max-tokens", "8"]
    assert (
        document(*greedy, stdin="My favourite colour is ")["text"]
        == document(*greedy, "My favourite colour is ")["text"]
    )


def test_stop_strings_and_log_probabilities() -> None:
    counting = ["--max-tokens", "12", "1, 2, 3"]
    out = document("--stop", "nowhere", "--stop", " 6", "--logprobs", "2", *counting)
    assert (out["text"], out["finish_reason"], out["stop"]) == (", 4, 5,", "stop", " 6")
    for token in out["tokens"]:
        assert token["top_logprobs"][0] == {"id": token["id"], "logprob": token["logprob"]}
        assert token["top_logprobs"][1]["logprob"] <= token["logprob"] <= 0.0
    assert warm_aici("run", "--stop", " 6", *counting).stdout == ", 4, 5,"
    refused = warm_aici("run", "--logprobs", "2", *counting)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "add --json" in refused.stderr


def test_plain_generation_and_its_length() -> None:
    out = document("--max-tokens", "5", "Once upon a time")
    assert out["finish_reason"] == "length"
    assert len(out["tokens"]) == 5
    assert out["logs"] == ""


def test_samples_have_seeds_and_can_be_repeated() -> None:
    args = ["--temperature", "1.5", "--seed", "7", "--num-samples", "3", "--regex", "[a-z]{12,20}", "A word: "]
    first, again = document(*args), document(*args)
    texts = [sample["text"] for sample in first["samples"]]
    assert all(re.fullmatch("[a-z]{12,20}", text) for text in texts)
    assert len(set(texts)) > 1
    assert texts == [sample["text"] for sample in again["samples"]]


def test_a_controller_file_can_force_text() -> None:
    out = document(
        "--controller", str(build_test_guest("forced")), "--controller-arg", "forty-two, of course", ULTIMATE
    )
    assert out["text"] == "forty-two, of course"
    assert {token["origin"] for token in out["tokens"]} == {"forced"}
    assert out["usage"]["sampled_tokens"] == 0
    assert out["usage"]["cost"] == out["usage"]["ff_tokens"] == len(out["tokens"])


def test_a_controller_larger_than_a_message(tmp_path: Path) -> None:
    wasm = padded(build_test_guest("forced").read_bytes(), 20 << 20)
    (tmp_path / "large.wasm").write_bytes(wasm)
    assert warm_aici("ctrl", "upload", str(tmp_path / "large.wasm"), "--tag", "large-one").returncode == 0
    for controller in (str(tmp_path / "large.wasm"), "large-one"):
        done = warm_aici("run", "--controller", controller, "--controller-arg", "so large", ULTIMATE)
        assert (done.returncode, done.stdout) == (0, "so large"), done.stderr


def test_the_argument_of_a_controller_can_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("from a file")
    done = warm_aici(
        "run", "--controller", str(build_test_guest("forced")), "--controller-arg", f"@{tmp_path}/text", "x"
    )
    assert done.stdout == "from a file"


def test_variables_of_the_controller_are_reported() -> None:
    out = document("--controller", str(build_test_guest("vars")), "--max-tokens", "3", "x")
    assert out["variables"]


def test_chat_uses_the_template() -> None:
    plain = document("--max-tokens", "1", "Hello")["usage"]["prompt_tokens"]
    assert document("--chat", "--max-tokens", "1", "Hello")["usage"]["prompt_tokens"] > plain + 5


def test_log_goes_to_stderr() -> None:
    done = warm_aici("run", "--log", "--regex", "ab", "x")
    assert done.stdout == "ab"
    assert "regex constraint" in done.stderr


def test_a_trap_is_exit_1_with_the_controllers_message() -> None:
    done = warm_aici("run", "--controller", str(build_test_guest("trap")), "x")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "unreachable" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("pattern", "position"), [(r"a\bc", 1), ("a(b", 1), ("[z-a]", 1), ("é(?=x)", 1), ("a{3,2}", 1), ("*a", 0)]
)
def test_a_bad_regex_is_exit_2_with_the_position_marked(pattern: str, position: int) -> None:
    done = warm_aici("run", "--regex", pattern, "x")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines[0].startswith("error: ")
    at = next(number for number, line in enumerate(lines) if line.strip() == pattern)
    assert lines[at + 1].index("^") - lines[at].index(pattern) == position


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--controller", "regx", "x"], "regex"),
        (["--controller", "no/such.wasm", "x"], "no/such.wasm"),
        (["--regex", "a", "--controller", "regex", "x"], "--regex"),
        (["--controller-arg", "a", "x"], "--controller"),
        (["--controller", "regex", "--controller-arg", "@/no/such/file", "x"], "/no/such/file"),
        (["--model", "no-such-model", "x"], "no-such-model"),
        (["--top-p", "0", "x"], "top_p"),
    ],
)
def test_wrong_use_is_exit_2_and_says_what_is_wrong(args: list[str], said: str) -> None:
    done = warm_aici("run", *args)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_a_prompt_longer_than_the_context_is_refused_with_both_lengths() -> None:
    done = warm_aici("run", "--max-tokens", "1", stdin="word " * 9000)
    assert done.returncode == 2
    assert "8192" in done.stderr
    assert re.search(r"\b9\d{3}\b", done.stderr)
