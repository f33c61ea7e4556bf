"""What travels between an engine and the runtime, as values. The AICI runtime protocol with callbacks pre, mid, post.

Sequence ids are JSON numbers in requests and string keys in responses. This file knows JSON shapes, not transport.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from aici_base.ids import SeqId, TokenId

T = TypeVar("T")

Proto = Literal["v1", "v2"]
"""Protocol v1 has the callbacks pre, mid and post; protocol v2 has mid alone."""


class PostOp(NamedTuple):
    """`tokens` were appended to `id` after `backtrack` tokens had been removed (as the mid result counted them)."""

    id: SeqId
    tokens: Sequence[TokenId]
    backtrack: int = 0

    def to_json(self) -> dict[str, object]:
        return {"id": self.id, "tokens": list(self.tokens), "backtrack": self.backtrack}


class PreOp(NamedTuple):
    """Bind the guest that was instantiated under `req_id` to the fresh sequence `id`."""

    id: SeqId
    req_id: str

    def to_json(self) -> dict[str, object]:
        return {"id": self.id, "req_id": self.req_id}


class MidOp(NamedTuple):
    """Compute the mask of `id`; with `clone_id`, `id` is fresh and becomes a fork of that sequence first."""

    id: SeqId
    clone_id: SeqId | None = None

    def to_json(self) -> dict[str, object]:
        return {"id": self.id, "clone_id": self.clone_id}


class StepOp(NamedTuple):
    """The later protocol's: what was appended to `id` since its last step, of which `sampled` is what was sampled.

    `id` is fresh with `req_id` (the guest that was instantiated under it) or with `clone_id` (that sequence is forked
    first, for its branch number `clone_idx`).
    """

    id: SeqId
    backtrack: int = 0
    tokens: Sequence[TokenId] = ()
    sampled: TokenId | None = None
    req_id: str | None = None
    clone_id: SeqId | None = None
    clone_idx: int | None = None

    def to_json(self) -> dict[str, object]:
        return self._asdict()


class Pre(NamedTuple):
    """`num_forks`: 0 = stop, 1 = go on, n = clone n - 1 times in the next `mid`. Append `ff_tokens` first.
    `late`: suspended because it is still computing."""

    suspend: bool
    num_forks: int
    ff_tokens: tuple[TokenId, ...]
    late: bool = False


class Post(NamedTuple):
    stop: bool


class Splice(NamedTuple):
    """Remove `backtrack` tokens, counting the one sampled in this step, then append `ff_tokens`.

    With `backtrack` 0 the sampled token is `ff_tokens[0]`: the mask allows no other. `late`: the guest is still
    computing, and nothing happens in this step; it is not told of it.
    """

    backtrack: int
    ff_tokens: tuple[TokenId, ...]
    late: bool = False


class SeqResult(NamedTuple, Generic[T]):
    """`error` is empty when all is well. `storage` holds the guest's writes of variables, as JSON values, in order."""

    result: T | None
    error: str
    storage: tuple[dict[str, Any], ...]
    logs: str
    micros: int


class PostPre(NamedTuple):
    """`post` has an entry per post op; `pre` one per live sequence, those freed in the same call included."""

    post: dict[SeqId, SeqResult[Post]]
    pre: dict[SeqId, SeqResult[Pre]]


class Mid(NamedTuple):
    """`result` is None where the mask row alone decides."""

    seqs: dict[SeqId, SeqResult[Splice]]
    num_seqs: int


class Turn(NamedTuple):
    """`mid`: of those that were not asked for pre, and of those that were and said nothing but to go on. `post` and
    `pre`: of those that were asked; but who is in `mid` and logged and wrote nothing in them is left out."""

    post: dict[SeqId, SeqResult[Post]]
    pre: dict[SeqId, SeqResult[Pre]]
    mid: dict[SeqId, SeqResult[Splice]]


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """`module_id` is the sha256 of the Wasm bytes, in hex."""

    module_id: str
    wasm_size: int
    compiled_size: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class TagInfo:
    tag: str
    module_id: str
    updated_at: int
    updated_by: str
    wasm_size: int
    compiled_size: int


def seq_results(data: Mapping[str, Any], decode: Callable[[Any], T]) -> dict[SeqId, SeqResult[T]]:
    """A map of `SeqResult`s as it stands in a response."""
    return {
        SeqId(int(seq_id)): SeqResult(
            None if entry["result"] is None else decode(entry["result"]),
            entry["error"],
            tuple(entry["storage"]),
            entry["logs"],
            entry["micros"],
        )
        for seq_id, entry in data.items()
    }


def decode_pre(value: Any) -> Pre:
    return Pre(value["suspend"], value["num_forks"], tuple(value["ff_tokens"]), value.get("late", False))


def decode_post(value: Any) -> Post:
    return Post(value["stop"])


def decode_splice(value: Any) -> Splice:
    return Splice(value["backtrack"], tuple(value["ff_tokens"]), value.get("late", False))
