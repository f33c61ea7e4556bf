"""Guests built from C++ with the SDK, in the whole runtime: cases out of reach for guests in the text format."""

from collections.abc import Callable, Iterator

import pytest

from aici_base.errors import ControllerError
from aici_base.ids import SeqId, TokenId
from aici_controllers import catalog
from aici_runtime.client import Runtime
from aici_runtime.wire import MidOp, PostOp, PreOp
from tests.runtime.support.tokenizer import BYTE_LEVEL_EOS


@pytest.fixture(scope="module")
def regex(runtime: Runtime) -> str:
    return runtime.mk_module(catalog.guest_path("regex").read_bytes()).module_id


@pytest.fixture
def start(runtime: Runtime, regex: str) -> Iterator[Callable[[int, str], SeqId]]:
    started: list[SeqId] = []

    def start(number: int, pattern: str) -> SeqId:
        seq_id, req_id = SeqId(number), f"regex-{number}"
        runtime.instantiate(req_id=req_id, prompt=[], module_id=regex, module_arg=pattern).result()
        runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(seq_id, req_id)], freed=[])
        started.append(seq_id)
        return seq_id

    yield start
    runtime.post_pre_process(post_ops=[], pre_ops=[], freed=started)


def allowed(runtime: Runtime, seq_id: SeqId) -> set[TokenId]:
    runtime.send_mid([MidOp(seq_id)])
    assert runtime.recv_mid().seqs[seq_id].error == ""
    with runtime.mask_rows(1) as rows:
        return {TokenId(k) for k in range(rows.nbytes * 8) if rows[0, k >> 3] >> (k & 7) & 1}


def append(runtime: Runtime, seq_id: SeqId, token: TokenId) -> tuple[TokenId, ...]:
    """Run the guest and return the forced tokens."""
    answer = runtime.post_pre_process(post_ops=[PostOp(seq_id, [token])], pre_ops=[], freed=[])
    assert answer.post[seq_id].error == ""
    told = answer.pre[seq_id].result
    assert told is not None
    return told.ff_tokens


def test_regex(runtime: Runtime, start: Callable[[int, str], SeqId], token_of: Callable[[bytes], TokenId]) -> None:
    seq_id = start(1, "hel?x")
    h, he, hel, e, x = (token_of(text) for text in (b"h", b"he", b"hel", b"e", b"x"))
    assert allowed(runtime, seq_id) == {h, he, hel}
    assert append(runtime, seq_id, h) == (e,)
    assert allowed(runtime, seq_id) == {token_of(b"l"), x}
    assert append(runtime, seq_id, x) == ()
    assert allowed(runtime, seq_id) == {TokenId(BYTE_LEVEL_EOS)}


def test_a_bad_pattern_fails_its_request_only(runtime: Runtime, start: Callable[[int, str], SeqId]) -> None:
    with pytest.raises(ControllerError, match="setup"):
        start(2, "(")
    assert allowed(runtime, start(3, "."))
