"""The requests of the stepper to a worker: an operation, three numbers, and JSON that the guest reads unchanged.

    request                                    reply
    mid        row, fork_group                 a WorkerReply; the mask goes to the row
    pre        id                              a post result of length 0, and the pre result (as for `post`)
    post       id, backtrack, tokens           u32 length of the post result, post result, pre result
    turn       id, row, backtrack, tokens      u32 length of the reply to pre or post, that reply, and a WorkerReply
                                               to mid if the guest goes on. Without tokens (not even []): pre alone
    step       id, row, argument               a WorkerReply; its first mask goes to the row
    fork       pairs of id and slot            for each the pid or an error; the forks wait for requests

A request to a pool itself (`pool_process.py`):

    clone      id, slot, slot of the parent    `ok`: the guest is forked into the slot; else the reason, and no fork
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

import orjson

from aici_base.ids import SeqId, TokenId
from aici_runtime.wire import PostOp, StepOp

HEAD: Final = Struct("<4I")
_FORK = Struct("<2I")
MID, PRE, POST, TURN, STEP, FORK, CLONE = range(7)


def mid(row: int, fork_group: Sequence[SeqId]) -> bytes:
    return HEAD.pack(MID, 0, row, 0) + orjson.dumps(fork_group)


def post_pre(seq_id: SeqId, op: PostOp | None) -> bytes:
    if op is None:
        return HEAD.pack(PRE, seq_id, 0, 0)
    return HEAD.pack(POST, seq_id, 0, op.backtrack) + orjson.dumps(op.tokens)


def turn(seq_id: SeqId, op: PostOp | None, row: int) -> bytes:
    if op is None:
        return HEAD.pack(TURN, seq_id, row, 0)
    return HEAD.pack(TURN, seq_id, row, op.backtrack) + orjson.dumps(op.tokens)


def turn_of_token(seq_id: SeqId, backtrack: int, token: TokenId, row: int) -> bytes:
    """As `turn` with a post op of one token."""
    return HEAD.pack(TURN, seq_id, row, backtrack) + b"[%d]" % token


def step(op: StepOp, row: int, fork_group: Sequence[SeqId]) -> bytes:
    argument = {"backtrack": op.backtrack, "tokens": op.tokens, "sampled": op.sampled, "fork_group": fork_group}
    return HEAD.pack(STEP, op.id, row, 0) + orjson.dumps(argument)


def fork(forks: Sequence[tuple[SeqId, int]]) -> bytes:
    """`forks`: the id and the slot of each."""
    return HEAD.pack(FORK, 0, 0, 0) + b"".join(_FORK.pack(*fork) for fork in forks)


def forks_of(request: bytes) -> Iterator[tuple[int, int]]:
    """Yield the id and the slot of each fork."""
    yield from _FORK.iter_unpack(request[HEAD.size :])


def clone(seq_id: SeqId, parent_slot: int, slot: int) -> bytes:
    return HEAD.pack(CLONE, seq_id, slot, parent_slot)
