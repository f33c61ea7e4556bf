"""Results of workers: what is taken for usual without being read is also right when it is read."""

import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_runtime.guests.driver import encode_result
from aici_runtime.protocol import worker_results
from aici_runtime.protocol.worker_results import NO_ANSWER, WorkerResults, usual_mid_reply, usual_turn_reply
from aici_runtime.workers import worker_replies
from aici_runtime.workers.guest_server import split_turn

RESULTS = WorkerResults(300)
USUAL = {
    "post": {"stop": False},
    "pre": {"suspend": False, "num_forks": 1, "ff_tokens": []},
    "mid": None,
    "step": {"branches": [{"sample_mask": 7, "temperature": None, "splices": []}]},
}


def usual(value: object, micros: int = 120) -> bytes:
    return encode_result(result=value, error="", storage=[], logs="", micros=micros)


@pytest.mark.parametrize("kind", USUAL)
def test_what_workers_usually_say_is_not_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_results, "_checked", lambda *_: pytest.fail("the result was read"))
    for value in (USUAL[kind], None):
        for micros in (0, 10, 1234567):
            assert getattr(RESULTS, kind)(usual(value, micros)) == usual(value, micros)


@pytest.mark.parametrize("kind", USUAL)
@given(data=st.data())
def test_a_changed_result_passes_only_if_it_reads_as_one(kind: str, data: st.DataObject) -> None:
    text = bytearray(usual(USUAL[kind]))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 6)))
        text[start:end] = data.draw(st.sampled_from([b"", b"0", b"1", b"-", b'"', b"}", b",", b"null", b"[]", b"\n"]))
    result = bytes(text)
    if getattr(RESULTS, kind)(result) == result:
        read = orjson.loads(result)
        assert read.keys() == {"error", "result", "storage", "logs", "micros"}
        assert type(read["micros"]) is int
    else:
        assert NO_ANSWER in getattr(RESULTS, kind)(result).decode()


@pytest.mark.parametrize("more", [b"\n", b" ", b',"9":{}', b"}"])
@pytest.mark.parametrize("kind", USUAL)
def test_a_result_with_more_behind_it_is_none(kind: str, more: bytes) -> None:
    said = getattr(RESULTS, kind)(usual(USUAL[kind]) + more)
    assert said in (usual(USUAL[kind]) + more if not more.strip() else b"",) or re.search(NO_ANSWER.encode(), said)


@given(st.data())
def test_a_changed_reply_is_usual_only_if_it_reads_as_one_mask(data: st.DataObject) -> None:
    mid = worker_replies.encode(usual(None), 1, ())
    assert usual_mid_reply(mid)
    assert usual_turn_reply(b"\0\0\0\0" + mid)
    assert not usual_mid_reply(b"\0\0\0\0" + mid)
    assert not usual_turn_reply(mid)
    reply = bytearray(b"\0\0\0\0" + mid)
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(reply) - 1))
        reply[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b"0", b"1", b"\0", b"\1", b'"'])
        )
    if found := usual_turn_reply(bytes(reply)):
        before, after = split_turn(bytes(reply))
        assert before == b""
        result = worker_replies.written_result(after)
        assert orjson.loads(result) == {"error": "", "result": None, "storage": [], "logs": "", "micros": int(found[1])}
        assert RESULTS.mid(result) == result
