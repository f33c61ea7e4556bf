"""The binary form of `turn_process`, between our own engine and our own runtime: the same command and the same answer
as in JSON, in a tenth of the time. A runtime answers either form in its own kind; other engines send JSON.

Nearly every result of a turn is *usual*: the mask row alone decides, and the guest wrote no log and no variable. Then
the answer holds the microseconds of the guest and nothing else. Other results stand as JSON at the end.

    command   the words of `_HEADER`, two doubles, arrays of words, names of requests in UTF-8
    answer    MAGIC, the number of ops, for each op the microseconds or NOT_USUAL, JSON as in `TurnRest` or nothing

A word is a u32, least significant byte first. No message of JSON begins as MAGIC does. A refusal is a message in JSON.
"""

import itertools
import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from aici_base.ids import SeqId, TokenId
from aici_runtime.wire import (
    MidOp,
    Patience,
    PostOp,
    PreOp,
    SeqResult,
    Splice,
    Turn,
    decode_post,
    decode_pre,
    decode_splice,
    seq_results,
)

MAGIC = b"\xfftrn"
NOT_USUAL = 0xFFFFFFFF
"""In place of microseconds: the result of the op is in the JSON, or the op has no result."""

_HEADER = struct.Struct("<4s10I2d")
"""MAGIC; the numbers of post ops, of their tokens, of pre ops, asked sequences, ops, clones, freed and hurried
sequences (_NO_PATIENCE without patience); the bytes of the names; the core of the engine's thread (NO_CORE: not told);
the seconds of `Patience`."""
_NO_PATIENCE = 0xFFFFFFFF
NO_CORE = 0xFFFFFFFF
_ANSWER_HEAD = struct.Struct("<4sI")
_WORD_BYTES = 4


class MalformedTurnError(ValueError):
    """Raised for a message that begins with MAGIC and is no turn."""


class TurnFields(NamedTuple):
    """The fields of `turn_process`. See `ControllerRuntime.send_turn`."""

    post_ops: list[PostOp]
    pre_ops: list[PreOp]
    asked: list[SeqId]
    ops: list[MidOp]
    freed: list[SeqId]
    patience: Patience | None = None

    def to_json(self) -> dict[str, object]:
        """Return the command in the form of JSON."""
        request: dict[str, object] = {
            "op": "turn_process",
            "post_ops": [op.to_json() for op in self.post_ops],
            "pre_ops": [op.to_json() for op in self.pre_ops],
            "asked": list(self.asked),
            "ops": [op.to_json() for op in self.ops],
            "freed": list(self.freed),
        }
        return request if self.patience is None else request | {"patience": self.patience.to_json()}


class CalmTurn(NamedTuple):
    """A turn without new guests, forks and hurried guests, in which each guest hears of one token at most.

    `ids`: the sequences of the ops, in their order. `told`: the number of removed tokens, and the appended token.
    `most_s`: of the patience.
    """

    ids: list[SeqId]
    asked: list[SeqId]
    told: dict[SeqId, tuple[int, TokenId]]
    freed: list[SeqId]
    most_s: float | None


class TurnRest(NamedTuple):
    """The part of an answer that is not usual: the entries of its maps in JSON, joined by commas."""

    post: bytes = b""
    pre: bytes = b""
    mid: bytes = b""
    cpu_us: bytes = b""

    def to_json(self) -> bytes:
        """Return the data of the answer."""
        more = b',"cpu_us":{%b}' % self.cpu_us if self.cpu_us else b""
        return b'{"post_seqs":{%b},"pre_seqs":{%b},"seqs":{%b}%b}' % (self.post, self.pre, self.mid, more)


def is_turn(message: bytes) -> bool:
    """Return whether a message is in binary form."""
    return message.startswith(MAGIC)


def encode(fields: TurnFields) -> bytes:
    """Return the command as bytes. Raises OverflowError or TypeError if a number is no u32."""
    posts, pre_ops, asked, ops, freed, patience = fields
    words: list[int] = [post.id for post in posts]
    words += [post.backtrack for post in posts]
    words += [len(post.tokens) for post in posts]
    num_tokens = len(words)
    for post in posts:
        words += post.tokens
    num_tokens = len(words) - num_tokens
    names = [op.req_id.encode() for op in pre_ops] if pre_ops else []
    words += [op.id for op in pre_ops]
    words += [len(name) for name in names]
    words += asked
    words += [op.id for op in ops]
    clones = [(place, op.clone_id) for place, op in enumerate(ops) if op.clone_id is not None]
    for clone in clones:
        words += clone
    words += freed
    most_s = hurried_s = 0.0
    num_hurried = _NO_PATIENCE
    if patience is not None:
        most_s, hurried_s, hurried = patience
        words += hurried
        num_hurried = len(hurried)
    header = _HEADER.pack(
        MAGIC, len(posts), num_tokens, len(pre_ops), len(asked), len(ops), len(clones), len(freed), num_hurried,
        sum(map(len, names)), NO_CORE, most_s, hurried_s,
    )  # fmt: skip
    return b"".join((header, array("I", words), *names))


def decode(message: bytes) -> TurnFields:
    """Parse a command. Raises MalformedTurnError."""
    try:
        return _decode(message)
    except (struct.error, UnicodeDecodeError, IndexError, ValueError) as error:
        raise MalformedTurnError(f"a turn in binary form cannot be read: {error}") from error


def decode_calm(message: bytes) -> CalmTurn | None:
    """Parse a calm turn. Return None for other turns, and for messages that `decode` refuses."""
    if len(message) < _HEADER.size:
        return None
    (
        _, num_posts, num_tokens, num_pre, num_asked, num_ops, num_clones, num_freed, num_hurried, num_name_bytes,
        _, most_s, _,
    ) = _HEADER.unpack_from(message)  # fmt: skip
    has_patience = num_hurried != _NO_PATIENCE
    num_words = 4 * num_posts + num_asked + num_ops + num_freed
    if num_tokens != num_posts or num_pre or num_clones or num_name_bytes or (has_patience and num_hurried):
        return None
    if len(message) != _HEADER.size + _WORD_BYTES * num_words:
        return None
    words: list[Any] = memoryview(message)[_HEADER.size :].cast("I").tolist()
    tokens_at = 3 * num_posts
    if words[2 * num_posts : tokens_at] != [1] * num_posts:
        return None
    pairs = zip(words[num_posts : 2 * num_posts], words[tokens_at : 4 * num_posts], strict=True)
    told = dict(zip(words[:num_posts], pairs, strict=True))
    asked_at = 4 * num_posts
    ops_at = asked_at + num_asked
    freed_at = ops_at + num_ops
    ids, asked = words[ops_at:freed_at], words[asked_at:ops_at]
    if len(told) < num_posts:
        return None  # a sequence with two posts
    return CalmTurn(ids, asked, told, words[freed_at:], most_s if has_patience else None)


def _decode(message: bytes) -> TurnFields:
    (
        _, num_posts, num_tokens, num_pre, num_asked, num_ops, num_clones, num_freed, num_hurried, num_name_bytes,
        _, most_s, hurried_s,
    ) = _HEADER.unpack_from(message)  # fmt: skip
    has_patience = num_hurried != _NO_PATIENCE
    sizes = (
        *(num_posts, num_posts, num_posts, num_tokens, num_pre, num_pre, num_asked),
        *(num_ops, 2 * num_clones, num_freed, num_hurried if has_patience else 0),
    )
    names_at = _HEADER.size + _WORD_BYTES * sum(sizes)
    if names_at + num_name_bytes != len(message):
        raise ValueError(f"it has {len(message)} bytes, and should have {names_at + num_name_bytes}")
    words: list[Any] = memoryview(message)[_HEADER.size : names_at].cast("I").tolist()
    ends = list(itertools.accumulate(sizes))
    ids, backtracks, counts, tokens, pre_ids, name_lengths, asked, op_ids, clones, freed, hurried = (
        words[end - size : end] for size, end in zip(sizes, ends, strict=True)
    )
    if sum(counts) != num_tokens or sum(name_lengths) != num_name_bytes:
        raise ValueError("its lengths do not agree")
    ops = list(map(MidOp, op_ids))
    for k in range(0, len(clones), 2):
        ops[clones[k]] = MidOp(op_ids[clones[k]], clones[k + 1])
    return TurnFields(
        list(map(PostOp, ids, _pieces(tokens, counts), backtracks)),
        list(map(PreOp, pre_ids, _names(message[names_at:], name_lengths))),
        asked,
        ops,
        freed,
        Patience(most_s, hurried_s, frozenset(hurried)) if has_patience else None,
    )


def _pieces(tokens: list[TokenId], counts: list[int]) -> Iterable[list[TokenId]]:
    if len(tokens) == len(counts) and 0 not in counts:
        return [[token] for token in tokens]
    return [tokens[end - count : end] for count, end in zip(counts, itertools.accumulate(counts), strict=True)]


def _names(names: bytes, lengths: list[int]) -> list[str]:
    return [
        names[end - length : end].decode() for length, end in zip(lengths, itertools.accumulate(lengths), strict=True)
    ]


def encode_answer(micros: Sequence[int], rest: TurnRest | None) -> bytes:
    """Return the answer as bytes. `micros`: of each op, in their order, or NOT_USUAL."""
    more = b"" if rest is None else rest.to_json()
    return b"".join((_ANSWER_HEAD.pack(MAGIC, len(micros)), array("I", micros), more))


def decode_answer(message: bytes, ops: Sequence[MidOp]) -> Turn:
    """Parse the answer to a turn with these ops. Raises MalformedTurnError."""
    micros, data = _split_answer(message, len(ops))
    usual: dict[SeqId, SeqResult[Splice]] = {
        op.id: SeqResult(None, "", (), "", each) for op, each in zip(ops, micros, strict=True) if each != NOT_USUAL
    }
    if data is None:
        return Turn({}, {}, usual)
    turn = turn_of(data)
    return turn._replace(mid=turn.mid | usual)


def turn_of(data: Any) -> Turn:
    """Return the value of an answer in JSON."""
    return Turn(
        seq_results(data["post_seqs"], decode_post),
        seq_results(data["pre_seqs"], decode_pre),
        seq_results(data["seqs"], decode_splice),
        {SeqId(int(seq_id)): micros / 1e6 for seq_id, micros in data.get("cpu_us", {}).items()},
    )


def answer_to_json(message: bytes, ops: Sequence[MidOp]) -> dict[str, Any]:
    """Return the data of the answer in the form of JSON, for recordings."""
    micros, data = _split_answer(message, len(ops))
    usual: dict[str, object] = {
        str(op.id): {"error": "", "result": None, "storage": [], "logs": "", "micros": each}
        for op, each in zip(ops, micros, strict=True)
        if each != NOT_USUAL
    }
    if data is None:
        return {"post_seqs": {}, "pre_seqs": {}, "seqs": usual}
    seqs = data["seqs"] | usual
    in_order = {name: seqs[name] for op in ops if (name := str(op.id)) in seqs}
    return {**data, "seqs": in_order}


def _split_answer(message: bytes, num_ops: int) -> tuple[list[int], Any]:
    end = _ANSWER_HEAD.size + _WORD_BYTES * num_ops
    try:
        _, num_micros = _ANSWER_HEAD.unpack_from(message)
        if num_micros != num_ops:
            raise ValueError(f"it answers {num_micros} ops, not {num_ops}")
        micros = memoryview(message)[_ANSWER_HEAD.size : end].cast("I").tolist()
        return micros, orjson.loads(message[end:]) if len(message) > end else None
    except (struct.error, TypeError, ValueError) as error:
        raise MalformedTurnError(f"the answer to a turn cannot be read: {error}") from error
