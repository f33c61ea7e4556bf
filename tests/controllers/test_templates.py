"""A guest forked from a template behaves exactly like a guest started afresh."""

from pathlib import Path

from tests.runtime.support import tokenizer
from tests.support.processes import command, descendants
from tests.support.transcripts import listeners, requests


def test_shipped_guests_do_the_same(tmp_path: Path) -> None:
    """`python -m tests.support.transcripts -n 1000` compares more."""
    num_answers = 0
    with listeners(tmp_path, tokenizer.byte_level(tmp_path)) as (with_templates, without):
        for request in requests(40, 1, tokenizer.BYTE_LEVEL_SIZE):
            heard = with_templates.transcript(request)
            assert heard == without.transcript(request), request
            num_answers += len(heard)
        assert num_answers > 200
        kept = [
            {pid for pid in descendants(one.pid) if command(pid) == "aicirt-template"}
            for one in (with_templates, without)
        ]
        assert [bool(pids) for pids in kept] == [True, False]
