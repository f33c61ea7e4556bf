"""The messages between an engine and the runtime, as values. Knows the JSON shapes, not the transport.

Sequence ids are JSON numbers in requests and string keys in responses.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from aici_base.ids import SeqId, TokenId

T = TypeVar("T")

Proto = Literal["v1", "v2"]
"""Protocol v1 has the callbacks pre, mid and post; protocol v2 has mid alone."""


class PostOp(NamedTuple):
    """`tokens` were appended to `id` after the removal of `backtrack` tokens (counted as in the mid result)."""

    id: SeqId
    tokens: Sequence[TokenId]
    backtrack: int = 0

    def to_json(self) -> dict[str, object]:
        return {"id": self.id, "tokens": list(self.tokens), "backtrack": self.backtrack}


class PreOp(NamedTuple):
    """Bind the guest instantiated under `req_id` to the fresh sequence `id`."""

    id: SeqId
    req_id: str

    def to_json(self) -> dict[str, object]:
        return {"id": self.id, "req_id": self.req_id}


class MidOp(NamedTuple):
    """Compute the mask of `id`. With `clone_id`, `id` is fresh and first becomes a fork of the sequence `clone_id`."""

    id: SeqId
    clone_id: SeqId | None = None

    def to_json(self) -> dict[str, object]:
        return {"id": self.id, "clone_id": self.clone_id}


class StepOp(NamedTuple):
    """Protocol v2: the tokens appended to `id` since the last step, and the token `sampled` among them.

    `id` is fresh with `req_id` (a guest to bind) or with `clone_id` (a sequence to fork first, for the branch number
    `clone_idx`).
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


class Patience(NamedTuple):
    """How long a turn waits for its guests, because other sequences have work: `most_s`, and `hurried_s` for the guests
    of `hurried`. For guests that were late before the turn, the turn does not wait at all."""

    most_s: float
    hurried_s: float
    hurried: Collection[SeqId] = ()

    def to_json(self) -> dict[str, object]:
        return {"most_ms": 1000 * self.most_s, "hurried_ms": 1000 * self.hurried_s, "hurried": list(self.hurried)}


class Pre(NamedTuple):
    """The pre result. `num_forks`: 0 = stop, 1 = go on, n = clone n - 1 times in the next `mid`. Append `ff_tokens`
    first. `late`: suspended because the guest is still computing."""

    suspend: bool
    num_forks: int
    ff_tokens: tuple[TokenId, ...]
    late: bool = False


class Post(NamedTuple):
    stop: bool


class Splice(NamedTuple):
    """The mid result: remove `backtrack` tokens, counting the token sampled in this step, then append `ff_tokens`.

    With `backtrack` 0 the sampled token is `ff_tokens[0]`, the only token in the mask. `late`: the guest is still
    computing, nothing happens in this step, and the guest is not told of the step.
    """

    backtrack: int
    ff_tokens: tuple[TokenId, ...]
    late: bool = False


class SeqResult(NamedTuple, Generic[T]):
    """The answer of a sequence. `error` is empty on success. `storage`: the guest's writes of variables, as JSON, in
    order."""

    result: T | None
    error: str
    storage: tuple[dict[str, Any], ...]
    logs: str
    micros: int


class PostPre(NamedTuple):
    """`post` has an entry per post op. `pre` has an entry per live sequence, also for sequences freed by the
    command."""

    post: dict[SeqId, SeqResult[Post]]
    pre: dict[SeqId, SeqResult[Pre]]


class Mid(NamedTuple):
    """`result` is None if the mask row alone decides."""

    seqs: dict[SeqId, SeqResult[Splice]]
    num_seqs: int


class Turn(NamedTuple):
    """`post` and `pre`: sequences asked for post and pre, without those in `mid` that logged nothing and wrote no
    variable.

    `mid`: sequences not asked for pre, and sequences asked for pre that said nothing but to go on. `cpu_s`: processor
    time that the guests' processes have used and that no turn has reported yet. Told once a second, and at the end of a
    sequence; guests of a pool share its time.
    """

    post: dict[SeqId, SeqResult[Post]]
    pre: dict[SeqId, SeqResult[Pre]]
    mid: dict[SeqId, SeqResult[Splice]]
    cpu_s: Mapping[SeqId, float] = {}


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """A stored module. `module_id` is the sha256 of the Wasm bytes, in hex."""

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
    """Decode a map of `SeqResult`s from a response."""
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
