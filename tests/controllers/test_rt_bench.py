"""The measured guests behave as the names of their rows say."""

from pathlib import Path

from aici_controllers.mask_bench.vocabulary import BenchVocabulary, open_vocabulary
from aici_controllers.rt_bench.fleet import V1Fleet
from aici_controllers.rt_bench.measure import VARIANTS, full, open_runtime, sparse
from aici_runtime.wire import MidOp
from tests.support.vocabulary import write_tokenizer

_TOKENS = [b"01", b"12", b"89012", b'say "', b"a\\", b"a\\n", b"a\\x", b"\\u", b"two\nlines", b"aaaa"]


def _allowed(vocabulary: BenchVocabulary, rows: memoryview) -> set[bytes]:
    bits = rows.tobytes()
    return {text for token, text in enumerate(vocabulary.token_bytes) if bits[token >> 3] >> (token & 7) & 1}


def test_their_masks(tmp_path: Path) -> None:
    vocabulary = open_vocabulary("test", write_tokenizer(tmp_path, _TOKENS))
    inside = {text for text in vocabulary.token_bytes if text and _in_json_string(text)}
    assert inside & set(_TOKENS) == {b"01", b"12", b"89012", b"a\\", b"a\\n", b"aaaa"}
    with open_runtime(vocabulary, VARIANTS[0]) as runtime:
        for make, masks in (
            (sparse, [{b"0", b"01", b"_", b""}, {b"1", b"12", b"_"}, {b"2", b"_"}]),  # the empty token is EOS
            (full, [inside, inside, inside]),
        ):
            with V1Fleet(runtime, make(runtime, vocabulary), 1) as fleet:
                fleet.mid()
                for number, expected in enumerate(masks):
                    assert _allowed(vocabulary, runtime.mask_rows(1)) == expected, (make.__name__, number)
                    fleet.step()


def test_interrupted_between_a_message_and_its_answer(tmp_path: Path) -> None:
    vocabulary = open_vocabulary("test", write_tokenizer(tmp_path, _TOKENS))
    with open_runtime(vocabulary, VARIANTS[0]) as runtime:
        fleet = V1Fleet(runtime, sparse(runtime, vocabulary), 1)
        runtime.send_mid([MidOp(seq_id) for seq_id in fleet.ids])
        fleet.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        assert len(runtime.recv_mid().seqs) == 1


def _in_json_string(text: bytes) -> bool:
    """Return whether a JSON string may continue with these bytes without ending."""
    escaped = False
    for byte in text:
        if byte < 0x20 or (byte == 0x22 and not escaped) or (escaped and byte not in b'"\\/bfnrt'):
            return False
        escaped = byte == 0x5C and not escaped
    return True
