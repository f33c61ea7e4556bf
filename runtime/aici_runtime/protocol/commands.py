"""Parse the commands of the main channel and check their shape. Checks against live sequences happen in the op sets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aici_base.ids import SeqId
from aici_runtime import turn_message
from aici_runtime.channels.envelope import RequestError, field, uint, uints
from aici_runtime.wire import MidOp, Patience, PostOp, PreOp, StepOp


@dataclass(frozen=True, slots=True)
class PostPreCommand:
    """A `post_pre_process` command. Ops by sequence id."""

    post_ops: dict[SeqId, PostOp]
    pre_ops: dict[SeqId, PreOp]
    freed: list[SeqId]


def parse_post_pre(body: dict[str, Any]) -> PostPreCommand:
    """Parse `post_pre_process`. Raises RequestError, like every parser here."""
    post_ops = [_post_op(op) for op in _objects(field(body, "post_ops", list))]
    pre_ops = [PreOp(uint(op, "id"), field(op, "req_id", str)) for op in field(body, "pre_ops", list)]
    return _post_pre(post_ops, pre_ops, uints(body, "freed"))


def _post_pre(post_ops: Sequence[PostOp], pre_ops: Sequence[PreOp], freed: list[SeqId]) -> PostPreCommand:
    _refuse_duplicates([op.id for op in post_ops])
    _refuse_duplicates([op.id for op in pre_ops])
    return PostPreCommand({op.id: op for op in post_ops}, {op.id: op for op in pre_ops}, freed)


def _post_op(op: Any) -> PostOp:
    return PostOp(uint(op, "id"), uints(op, "tokens"), uint(op, "backtrack") if "backtrack" in op else 0)


def parse_mid(body: dict[str, Any]) -> list[MidOp]:
    """Parse `mid_process` of protocol v1."""
    ops = [
        MidOp(uint(op, "id"), None if op.get("clone_id") is None else uint(op, "clone_id"))
        for op in _objects(field(body, "ops", list))
    ]
    _refuse_duplicates([op.id for op in ops])
    return ops


@dataclass(frozen=True, slots=True)
class TurnCommand:
    """A `turn_process` command: post (for sequences with a post op) and pre for the sequences in `asked` and for those
    bound by `post_pre.pre_ops`; mid for the sequences in `ops`."""

    post_pre: PostPreCommand
    asked: list[SeqId]
    ops: list[MidOp]
    patience: Patience | None


def parse_turn(body: dict[str, Any]) -> TurnCommand:
    """Parse `turn_process`."""
    return _checked_turn(TurnCommand(parse_post_pre(body), uints(body, "asked"), parse_mid(body), _patience(body)))


def decode_turn(message: bytes) -> TurnCommand:
    """Parse `turn_process` in binary form."""
    try:
        post_ops, pre_ops, asked, ops, freed, patience = turn_message.decode(message)
    except turn_message.MalformedTurnError as error:
        raise RequestError(str(error)) from error
    _refuse_duplicates([op.id for op in ops])
    return _checked_turn(TurnCommand(_post_pre(post_ops, pre_ops, freed), asked, ops, patience))


def _checked_turn(command: TurnCommand) -> TurnCommand:
    _refuse_duplicates([*command.asked, *command.post_pre.pre_ops])
    asked = {*command.asked, *command.post_pre.pre_ops}
    for seq_id in command.post_pre.post_ops:
        if seq_id not in asked:
            raise RequestError(f"a post op for {seq_id}, which is not asked")
    for op in command.ops:
        if op.clone_id in asked:
            raise RequestError(f"cannot clone {op.clone_id} before it has answered pre")
    return command


def _patience(body: dict[str, Any]) -> Patience | None:
    if body.get("patience") is None:
        return None
    patience = field(body, "patience", dict)
    most_ms, hurried_ms = (patience.get(name) for name in ("most_ms", "hurried_ms"))
    for number in (most_ms, hurried_ms):
        if not isinstance(number, int | float) or isinstance(number, bool) or number < 0:
            raise RequestError("patience needs most_ms and hurried_ms: numbers of at least 0")
    return Patience(most_ms / 1000, hurried_ms / 1000, frozenset(uints(patience, "hurried")))


@dataclass(frozen=True, slots=True)
class StepsCommand:
    """A `mid_process` command of protocol v2."""

    ops: list[StepOp]
    freed: list[SeqId]


def parse_steps(body: dict[str, Any]) -> StepsCommand:
    """Parse `mid_process` of protocol v2."""
    ops = [_step_op(op) for op in _objects(field(body, "ops", list))]
    _refuse_duplicates([op.id for op in ops])
    return StepsCommand(ops, uints(body, "freed"))


def _step_op(op: dict[str, Any]) -> StepOp:
    sampled, clone_id, clone_idx = (
        None if op.get(name) is None else uint(op, name) for name in ("sampled", "clone_id", "clone_idx")
    )
    req_id: str | None = None if op.get("req_id") is None else field(op, "req_id", str)
    if req_id is not None and clone_id is not None:
        raise RequestError("req_id and clone_id exclude each other")
    if (clone_id is None) != (clone_idx is None) or clone_idx == 0:
        raise RequestError("clone_idx, at least 1, belongs to clone_id")
    return StepOp(uint(op, "id"), uint(op, "backtrack"), uints(op, "tokens"), sampled, req_id, clone_id, clone_idx)


def _objects(items: list[Any]) -> Iterable[dict[str, Any]]:
    for item in items:
        if not isinstance(item, dict):
            raise RequestError("an op is not an object")
        yield item


def _refuse_duplicates(ids: list[SeqId]) -> None:
    if len(set(ids)) < len(ids):
        raise RequestError(f"duplicate id {next(one for place, one in enumerate(ids) if one in ids[:place])}")
