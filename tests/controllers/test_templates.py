"""A guest forked from a template, or started in a pool, behaves exactly like a guest started afresh."""

from pathlib import Path

from tests.runtime.support import tokenizer
from tests.support.processes import command, descendants
from tests.support.transcripts import listeners, requests


def test_shipped_guests_do_the_same(tmp_path: Path) -> None:
    """`python -m tests.support.transcripts -n 1000` compares more."""
    num_answers = 0
    with listeners(tmp_path, tokenizer.byte_level(tmp_path)) as (afresh, forked, pooled):
        for request in requests(40, 1, tokenizer.BYTE_LEVEL_SIZE):
            heard = afresh.transcript(request)
            assert heard == forked.transcript(request), request
            assert heard == pooled.transcript(request), request
            num_answers += len(heard)
        assert num_answers > 200
        found = [{command(pid) for pid in descendants(one.pid)} for one in (afresh, forked, pooled)]
        assert ["aicirt-template" in names for names in found[:2]] == [False, True]
        assert ["aicirt-pool" in names for names in found] == [False, False, True]
