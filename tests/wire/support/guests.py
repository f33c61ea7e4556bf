"""The life of a guest as an engine drives it, in both protocol versions: instantiate, bind, step, free."""

import struct
from typing import Any

from tests.wire.support import puppet
from tests.wire.support.engine import Engine, data, fresh

VOCAB = 261
Entry = dict[str, Any]


class Guests:
    """The most frequent commands. `call` returns whole responses; the methods here return the data of good
    responses."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.version = engine.version
        self.is_v2 = engine.version == "v2"

    def request(self, **callbacks: Any) -> str:
        """Instantiate a guest with the given `callbacks` and return the request id."""
        req_id = f"r{fresh()}"
        entry = self.instantiate(req_id, **callbacks)
        assert entry.get("error", "") == "", entry
        return req_id

    def instantiate(self, req_id: str, tokens: list[int] | None = None, **callbacks: Any) -> Entry:
        return dict(data(self.try_instantiate(req_id, tokens, **callbacks)))

    def try_instantiate(self, req_id: str, tokens: list[int] | None = None, **callbacks: Any) -> Any:
        return self.engine.side(
            "instantiate",
            req_id=req_id,
            prompt=[1] if tokens is None else tokens,
            module_id=self.engine.upload(puppet.module(self.version)),
            module_arg=puppet.program(self.version, **callbacks),
        )

    def bind(self, **callbacks: Any) -> int:
        """Return a new sequence bound to a new guest. Protocol v2 binds in the first step, so the step is made here."""
        seq_id, req_id = fresh(), self.request(**callbacks)
        if self.is_v2:
            self.step([{"id": seq_id, "req_id": req_id}])
        else:
            self.post_pre(pre_ops=[{"id": seq_id, "req_id": req_id}])
        return seq_id

    def step(self, ops: list[dict[str, Any]], freed: list[int] | None = None) -> dict[int, Entry]:
        """Send `mid_process`; fields required by protocol v2 are filled in."""
        return {int(key): entry for key, entry in data(self.try_step(ops, freed))["seqs"].items()}

    def try_step(self, ops: list[dict[str, Any]], freed: list[int] | None = None) -> Any:
        if self.is_v2:
            full = [{"backtrack": 0, "tokens": [], "sampled": None} | op for op in ops]
            return self.engine.call("mid_process", ops=full, freed=freed or [])
        return self.engine.call("mid_process", ops=ops)

    def mid(self, seq_id: int, **fields: Any) -> Entry:
        return self.step([{"id": seq_id} | fields])[seq_id]

    def post_pre(self, **fields: Any) -> Any:
        return data(self.try_post_pre(**fields))

    def try_post_pre(self, **fields: Any) -> Any:
        return self.engine.call("post_pre_process", **{"post_ops": [], "pre_ops": [], "freed": []} | fields)

    def first(self, **callbacks: Any) -> Entry:
        """Return the result of the first callback of a step (v1: pre; v2: mid) and free the guest."""
        seq_id, req_id = fresh(), self.request(**callbacks)
        op = {"id": seq_id, "req_id": req_id}
        entry = self.step([op])[seq_id] if self.is_v2 else self.post_pre(pre_ops=[op])["pre_seqs"][str(seq_id)]
        self.free(seq_id)
        return dict(entry)

    def only_mid(self, body: puppet.Script, **callbacks: Any) -> Entry:
        """Return the result of a mid callback that runs `body`, with either version."""
        req_id, seq_id = self.request(mid=body, **callbacks), fresh()
        if self.is_v2:
            entry = self.step([{"id": seq_id, "req_id": req_id}])[seq_id]
        else:
            self.post_pre(pre_ops=[{"id": seq_id, "req_id": req_id}])
            entry = self.mid(seq_id)
        self.free(seq_id)
        return entry

    def free(self, *seq_ids: int) -> None:
        if self.is_v2:
            self.step([], list(seq_ids))
        else:
            self.post_pre(freed=list(seq_ids))


def masks(engine: Engine, reply: Any, entry: Any, row: int) -> list[set[int]]:
    """Return the tokens allowed by every mask of a sequence. `row`: index of the op in the request."""
    if engine.version == "v1":
        places = [] if entry["error"] else [row * 4 * VOCAB]
    else:
        start, stride = reply["first_mask_byte_offset"], reply["mask_num_bytes"]
        indices = [branch["sample_mask"] for branch in (entry["result"] or {"branches": []})["branches"]]
        places = [start + stride * index for index in indices if index is not None]
    rows = [struct.unpack_from(f"<{VOCAB}f", engine.bin, at) for at in places]
    return [{token for token, value in enumerate(row) if value == 0} for row in rows]
