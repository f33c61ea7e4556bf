"""The binary form of `turn_process` says what the form of JSON says."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_base.ids import SeqId, TokenId
from aici_runtime import turn_message
from aici_runtime.protocol.commands import decode_turn, parse_turn
from aici_runtime.protocol.worker_results import split_usual
from aici_runtime.turn_message import MalformedTurnError, TurnFields, TurnRest
from aici_runtime.wire import MidOp, Patience, PostOp, PreOp

words = st.integers(0, 2**32 - 1)
ids = st.lists(words.map(SeqId), max_size=6, unique=True)
seconds = st.floats(0, 1e6)


@st.composite
def turns(draw: st.DrawFn) -> TurnFields:
    """Draw a turn that the runtime accepts, but for unknown sequences."""
    asked, others, fresh = draw(ids), draw(ids), draw(ids)
    taken = {*asked, *others}
    tokens = st.lists(words.map(TokenId), max_size=4)
    posts = [PostOp(seq_id, draw(tokens), draw(words)) for seq_id in asked if draw(st.booleans())]
    parents = [seq_id for seq_id in others if seq_id not in asked]
    clones = [
        MidOp(seq_id, draw(st.sampled_from(parents)) if parents else None)
        for seq_id in draw(ids)
        if seq_id not in taken
    ]
    ops = draw(st.permutations([*map(MidOp, taken), *clones]))
    pre_ops = [PreOp(seq_id, draw(st.text(max_size=9))) for seq_id in fresh if seq_id not in taken]
    patience = draw(st.none() | st.builds(Patience, seconds, seconds, ids.map(frozenset)))
    return TurnFields(posts, pre_ops, asked, ops, draw(ids), patience)


def near(patience: Patience | None) -> Any:
    """JSON carries milliseconds, so the last digits differ."""
    return patience and (pytest.approx(patience.most_s), pytest.approx(patience.hurried_s), patience.hurried)


@given(turns())
def test_both_forms_are_the_same_command(fields: TurnFields) -> None:
    message = turn_message.encode(fields)
    assert turn_message.is_turn(message)
    assert turn_message.decode(message) == fields
    binary, json = decode_turn(message), parse_turn(orjson.loads(orjson.dumps(fields.to_json())))
    assert (binary.post_pre, binary.asked, binary.ops) == (json.post_pre, json.asked, json.ops)
    assert near(binary.patience) == json.patience


def result(value: Any = None, *, error: str = "", logs: str = "", storage: Any = (), micros: int = 10) -> bytes:
    return orjson.dumps({"error": error, "result": value, "storage": list(storage), "logs": logs, "micros": micros})


splices = st.builds(lambda n: {"backtrack": n, "ff_tokens": [n, 2]}, st.integers(0, 9))
results = st.one_of(
    st.none(),
    st.integers(0, 2**32 - 2).map(
        lambda micros: b'{"error":"","result":null,"storage":[],"logs":"","micros":%d}' % micros
    ),
    st.builds(
        lambda value, logs, micros: result(value, logs=logs, micros=micros),
        splices,
        st.text(),
        st.integers(0, 2**63 - 1),
    ),
    st.text(min_size=1).map(lambda error: result(error=error)),
    st.just(result(storage=[{"WriteVar": {"name": "a", "value": "", "op": "set", "when_version_is": None}}])),
)


@given(st.lists(results, max_size=8), st.booleans(), st.booleans())
def test_both_forms_are_the_same_answer(entries: list[bytes | None], has_pre: bool, has_cpu: bool) -> None:
    ops = [MidOp(SeqId(7 * number)) for number in range(len(entries))]
    pre = b'"3":' + result({"suspend": True, "num_forks": 1, "ff_tokens": [], "late": True}) if has_pre else b""
    post = b'"3":' + result({"stop": False}, logs="said") if has_pre else b""
    cpu = b'"3":1500000' if has_cpu else b""
    json = TurnRest(post, pre, as_map(ops, entries), cpu).to_json()
    micros, others = split_usual(entries)
    rest = TurnRest(post, pre, as_map(ops, others), cpu)
    message = turn_message.encode_answer(micros, rest if any(rest) else None)
    assert turn_message.decode_answer(message, ops) == turn_message.turn_of(orjson.loads(json))
    # Recordings hold the form of JSON.
    recorded = turn_message.answer_to_json(message, ops)
    assert recorded == orjson.loads(json)
    assert list(recorded["seqs"]) == list(orjson.loads(json)["seqs"])


def as_map(ops: list[MidOp], entries: list[bytes | None]) -> bytes:
    pairs = [(op.id, entry) for op, entry in zip(ops, entries, strict=True) if entry is not None]
    return b",".join(b'"%d":%b' % pair for pair in pairs)


@given(turns())
def test_a_calm_turn_is_the_same_command(fields: TurnFields) -> None:
    is_calm = not fields.pre_ops and not (fields.patience and fields.patience.hurried)
    is_calm = is_calm and all(op.clone_id is None for op in fields.ops)
    is_calm = is_calm and all(len(op.tokens) == 1 for op in fields.post_ops)
    calm = turn_message.decode_calm(turn_message.encode(fields))
    assert (calm is not None) == is_calm
    if calm is not None:
        told = {op.id: (op.backtrack, op.tokens[0]) for op in fields.post_ops}
        most_s = fields.patience and fields.patience.most_s
        assert calm == ([op.id for op in fields.ops], fields.asked, told, fields.freed, most_s)


@given(turns(), st.data())
def test_a_damaged_command_is_refused(fields: TurnFields, data: st.DataObject) -> None:
    message = bytearray(turn_message.encode(fields))
    at = data.draw(st.integers(4, len(message) - 1))
    if data.draw(st.booleans()):
        del message[at:]
    else:
        message[at] ^= data.draw(st.integers(1, 255))
    calm = turn_message.decode_calm(bytes(message))
    try:
        turn_message.decode(bytes(message))
    except MalformedTurnError:
        assert calm is None


def test_an_answer_to_another_turn_is_refused() -> None:
    message = turn_message.encode_answer([10, 20], None)
    for ops in ([], [MidOp(SeqId(1))], [MidOp(SeqId(number)) for number in range(3)]):
        with pytest.raises(MalformedTurnError, match="answers 2 ops"):
            turn_message.decode_answer(message, ops)
    with pytest.raises(MalformedTurnError, match="cannot be read"):
        turn_message.decode_answer(message[:-3], [MidOp(SeqId(1)), MidOp(SeqId(2))])


@pytest.mark.parametrize("number", [-1, 2**32, "1"])
def test_only_words_can_be_said(number: Any) -> None:
    with pytest.raises((OverflowError, TypeError)):
        turn_message.encode(TurnFields([PostOp(SeqId(1), [number])], [], [SeqId(1)], [], []))
