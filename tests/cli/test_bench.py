"""`aici bench` measures and reports errors. The figures themselves are not tested."""

import json
import random
import re
from pathlib import Path

import pytest

from aici_base.errors import AiciError
from aici_cli.bench.constraint_cost.command import check_tokens
from aici_cli.bench.constraint_cost.kinds import either_case
from aici_cli.bench.median_interval import median_interval
from aici_cli.bench.speculate import check_texts
from aici_cli.bench.speculate_prompts import KINDS
from tests.support.cli import aici
from tests.support.vocabulary import write_tokenizer


def test_masks(tmp_path: Path) -> None:
    tokenizer = str(write_tokenizer(tmp_path, [b"2024", b"-11-", b"59:"]))
    picture = tmp_path / "masks.svg"
    wanted = ["--case", "date_time", "--case", "quoted", "--peer", "llguidance"]
    done = aici("bench", "masks", "--quick", "--tokenizer", tokenizer, *wanted, "--json", "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["case"], row["engine"]) for row in rows] == [
        ("date_time", "aici"),
        ("date_time", "llguidance"),
        ("quoted", "aici"),
        ("quoted", "llguidance"),
    ]
    for row in rows:
        assert not row["findings"]["problem"]
        assert not row["refuses_text"]
        assert not row["findings"]["accepted"]
        assert len(row["masks_us"]) == row["text_tokens"] + 1
        assert 0 < row["mask_p50_us"] <= row["mask_p99_us"] <= row["mask_max_us"]
        assert row["first_us"] >= row["ready_us"] > 0
        assert row["first_mask_us"] > 0
        assert row["engine"] != "aici" or 0 < row["findings"]["memory_bytes"] <= 64 << 20
    assert "<svg" in picture.read_text()


def test_masks_as_a_table(tmp_path: Path) -> None:
    tokenizer = str(write_tokenizer(tmp_path, []))
    done = aici("bench", "masks", "--quick", "--peer", "none", "--case", "phone", "--tokenizer", tokenizer)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("phone")] == [["phone", "aici"]]


ENGINES_WAYS = (("process", "semaphore"), ("pool", "semaphore"))


def test_bench_rt(tmp_path: Path) -> None:
    tokenizer = str(write_tokenizer(tmp_path, [b"01", b"123"]))
    picture = tmp_path / "rt.svg"
    wanted = ["--quick", "--sequences", "2", "--tokenizer", tokenizer, "--json", "--plot", str(picture)]
    done = aici("bench", "rt", *wanted)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    steps = [row for row in rows if row["measure"] == "step"]
    assert {
        tuple(row[name] for name in ("commands", "placement", "sync", "mask", "sequences", "gap_ms")) for row in steps
    } == {
        (commands, placement, sync, mask, 2, gap)
        for commands, placement, sync in (
            *((proto, *how) for proto in ("v1", "v2") for how in (*ENGINES_WAYS, ("process", "futex"))),
            *(("turn", *how) for how in ENGINES_WAYS),
        )
        for mask in ("sparse", "full")
        for gap in (0, 3)
    }
    for row in steps:
        assert 0 < row["mid_min_us"] <= row["mid_p50_us"] <= row["mid_p99_us"]
        assert row["mid_p50_us"] <= row["step_p50_us"] <= row["step_p99_us"]
        assert row["mid_to_floor"] > 0  # on a busy machine the floor may be above
    life = {row["measure"]: row for row in rows if row["measure"] != "step"}
    assert life["trap"]["p50_us"] < life["runaway, over its limit"]["p50_us"]
    assert life["ping, semaphore"]["p50_us"] > 0 < life["floor, semaphore"]["p50_us"]
    assert life["memory of each of 20, process"]["p50_bytes"] > 100_000
    assert life["instantiate, from a template"]["p50_us"] > 0
    assert "<svg" in picture.read_text()


def test_what_cannot_be_measured(tmp_path: Path) -> None:
    for arguments, says in (
        (["--case", "poem"], "no case is called 'poem'"),
        (["--peer", "abacus"], "no engine is called 'abacus'"),
        (["--tokenizer", "no such thing"], "no tokenizer at no such thing"),
        (["--plot", "masks.gif"], "use a file name with .svg or .png"),
    ):
        done = aici("bench", "masks", *arguments)
        assert done.returncode == 2
        assert says in done.stderr


@pytest.mark.parametrize("text", ["It was a_quiet [morning]-\n\\d^", "ß ﬁ İ é 日本", ""])
def test_the_sparse_mask_allows_the_text_and_never_a_single_character(text: str) -> None:
    pattern = either_case(text)
    assert re.fullmatch(pattern, text)
    for at in range(len(text)):
        allowed = [
            char
            for char in {*map(chr, range(0x180)), *text}
            if re.match(pattern[: -len(r"(.|\n)*")], text[:at] + char + text[at + 1 :])
        ]
        assert len(allowed) == 2


def test_different_tokens_are_an_error() -> None:
    same = {"kind": "dense", "batch": 1, "same_tokens": True}
    check_tokens([same])
    with pytest.raises(AiciError, match="changed the tokens: sparse at batch 8"):
        check_tokens([same, {"kind": "sparse", "batch": 8, "same_tokens": False}])


@pytest.mark.parametrize(
    ("number", "ranks"),
    [(0, None), (1, None), (5, None), (6, (1, 6)), (9, (2, 8)), (15, (4, 12)), (20, (6, 15)), (30, (10, 21))],
)
def test_the_interval_of_a_median_is_that_of_the_tables(number: int, ranks: tuple[int, int] | None) -> None:
    values = [float(rank) for rank in range(1, number + 1)]
    random.Random(number).shuffle(values)
    assert median_interval(values) == ranks


def test_constraint_accounts_for_every_process() -> None:
    done = aici("bench", "constraint", "--quick", "--rounds", "1", "--batch", "2", "--kind", "script", "--json")
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)
    assert (row["kind"], row["batch"], row["same_tokens"]) == ("script", 2, True)
    plain, constrained = row["cpu_us"]["plain"], row["cpu_us"]["constrained"]
    assert plain["engine"] > 0
    assert constrained["aicirt"] > plain["aicirt"]
    assert sum(used for name, used in constrained.items() if name in ("aicirt-seq", "aicirt-pool")) > 0


@pytest.mark.parametrize("drafts", [(), ("--draft-model", "default", "--draft-dtype", "int4")])
def test_speculate_compares_the_texts(drafts: tuple[str, ...]) -> None:
    work = ("--quick", "--batch", "2", "--kind", "free", "--num-tokens", "24", "--json")
    done = aici("bench", "speculate", *work, *drafts)
    assert done.returncode == 0, done.stderr
    plain, constrained = json.loads(done.stdout)
    assert (plain["constrained"], constrained["constrained"]) == (False, True)
    assert plain["same_texts"] is constrained["same_texts"] is True
    # The number of passes depends on which sequence of a batch starts first.
    assert min(plain["drafted_passes"], plain["plain_passes"]) > 0
    assert 0 <= plain["accepted"] <= plain["drafted"]
    changed = {"kind": "edits", "batch": 4, "same_texts": False}
    with pytest.raises(AiciError, match="changed a text: edits at batch 4"):
        check_texts([plain, changed])


def test_each_kind_of_prompts_has_15() -> None:
    assert [len(set(prompts)) for prompts in KINDS.values()] == [15] * 4


def test_an_unknown_kind_is_refused() -> None:
    done = aici("bench", "constraint", "--kind", "dens")
    assert done.returncode == 2
    assert "the kinds are dense, sparse" in done.stderr
    done = aici("bench", "speculate", "--kind", "fre")
    assert done.returncode == 2
    assert "the kinds are extraction, edits, quotes, free" in done.stderr
