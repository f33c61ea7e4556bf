"""Engines of both protocols without a model: the lowest token in the mask is sampled.

An engine plays a request to the end and returns the outcome of every sequence, by the path of forks to the sequence.
"""

import struct
from dataclasses import dataclass, field
from typing import Any

from aici_runtime import turn_message
from aici_runtime.turn_message import TurnFields
from aici_runtime.wire import MidOp, PostOp, PreOp
from tests.runtime.support.raw import RawEngine

Path = tuple[int, ...]
PROMPT = list(range(1, 101))
_MAX_STEPS = 200


@dataclass
class Sequence:
    path: Path
    tokens: list[int] = field(default_factory=lambda: list(PROMPT))
    logs: str = ""
    error: str = ""
    num_forks: int = 0

    def splice(self, backtrack: int, tokens: list[int]) -> None:
        assert backtrack < len(self.tokens)
        del self.tokens[len(self.tokens) - backtrack :]
        self.tokens += tokens

    def clone(self) -> "Sequence":
        self.num_forks += 1
        return Sequence((*self.path, self.num_forks), list(self.tokens), self.logs)

    def note(self, result: dict[str, Any]) -> bool:
        self.logs += result["logs"]
        self.error = result["error"]
        return not self.error


class Engine:
    def __init__(self, raw: RawEngine, first_id: int) -> None:
        self.raw = raw
        self.next_id = first_id
        self.live: dict[int, Sequence] = {}
        self.done: list[Sequence] = []

    def run(self, req_id: str) -> dict[Path, Sequence]:
        seq_id = self.new_id()
        self.live[seq_id] = Sequence(())
        self.begin(seq_id, req_id)
        for _ in range(_MAX_STEPS):
            if not self.live:
                break
            self.step()
        assert not self.live, "the guests never stop"
        return {sequence.path: sequence for sequence in self.done}

    def begin(self, seq_id: int, req_id: str) -> None:
        raise NotImplementedError

    def step(self) -> None:
        raise NotImplementedError

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def end(self, seq_id: int) -> None:
        self.done.append(self.live.pop(seq_id))

    def lowest(self, first_byte: int) -> int:
        (word,) = struct.unpack_from("<I", self.raw.bin, first_byte)
        return (word & -word).bit_length() - 1 if word else -1


class V2Engine(Engine):
    def begin(self, seq_id: int, req_id: str) -> None:
        self.ops = {seq_id: {"id": seq_id, "req_id": req_id, "backtrack": 0, "tokens": [], "sampled": None}}
        self.freed: list[int] = []

    def step(self) -> None:
        ops, self.ops = list(self.ops.values()), {}
        response = self.raw.call(op="mid_process", ops=ops, freed=self.freed)
        assert response["type"] == "ok", response
        data, self.freed = response["data"], []
        for seq_id in [op["id"] for op in ops]:
            assert str(seq_id) in data["seqs"], (seq_id, ops, response)
            result = data["seqs"][str(seq_id)]
            sequence = self.live[seq_id]
            branches = result["result"]["branches"] if sequence.note(result) else []
            clones = [sequence.clone() for _ in branches[1:]]
            for index, branch in enumerate(branches):
                op = {"id": seq_id}
                target = sequence
                if index:
                    target = clones[index - 1]
                    op = {"id": self.new_id(), "clone_id": seq_id, "clone_idx": index}
                    self.live[op["id"]] = target
                self.ops[op["id"]] = op | self.apply(target, branch, data)
            if not branches:
                self.end(seq_id)
                self.freed.append(seq_id)
        if not self.live:
            self.raw.call(op="mid_process", ops=[], freed=self.freed)

    def apply(self, sequence: Sequence, branch: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        if branch["sample_mask"] is None:
            (splice,) = branch["splices"]
            sequence.splice(splice["backtrack"], splice["ff_tokens"])
            return {"sampled": None, "backtrack": splice["backtrack"], "tokens": splice["ff_tokens"]}
        row = data["first_mask_byte_offset"] + branch["sample_mask"] * data["mask_num_bytes"]
        sampled = self.lowest(row)
        sequence.tokens.append(sampled)
        for splice in branch["splices"]:
            if not splice["when_sampled"] or sampled in splice["when_sampled"]:
                backtrack, tokens = splice["backtrack"], splice["ff_tokens"]
                sequence.splice(backtrack, tokens)
                if backtrack:  # the count includes the sampled token, unknown to the guest
                    return {"sampled": sampled, "backtrack": backtrack - 1, "tokens": tokens}
                return {"sampled": sampled, "backtrack": 0, "tokens": [sampled, *tokens]}
        return {"sampled": sampled, "backtrack": 0, "tokens": [sampled]}


class V1Engine(Engine):
    def begin(self, seq_id: int, req_id: str) -> None:
        self.pre_ops = [{"id": seq_id, "req_id": req_id}]
        self.post_ops: list[dict[str, Any]] = []
        self.freed: list[int] = []

    def step(self) -> None:
        data = self.round()
        forking: dict[int, int] = {}
        for seq_id in list(self.live):
            sequence, pre = self.live[seq_id], data["pre_seqs"][str(seq_id)]
            post = data["post_seqs"].get(str(seq_id))
            stops = post is not None and sequence.note(post) and post["result"]["stop"]
            if sequence.error or stops or not sequence.note(pre):
                self.free(seq_id)
                continue
            sequence.tokens += pre["result"]["ff_tokens"]
            if pre["result"]["num_forks"] == 0:
                self.free(seq_id)
            elif not pre["result"]["suspend"] and str(seq_id) not in data.get("seqs", ()):
                forking[seq_id] = pre["result"]["num_forks"]
        self.sample(forking)
        if not self.live:
            self.round()

    def sample(self, forking: dict[int, int]) -> None:
        """Clone each named sequence into so many."""
        ops = []
        for seq_id, num_forks in forking.items():
            ops.append({"id": seq_id, "clone_id": None})
            for _ in range(num_forks - 1):
                clone_id = self.new_id()
                self.live[clone_id] = self.live[seq_id].clone()
                ops.append({"id": clone_id, "clone_id": seq_id})
        if ops:
            self.mid(ops, self.ask_mid(ops))

    def round(self) -> dict[str, Any]:
        response = self.raw.call(op="post_pre_process", post_ops=self.post_ops, pre_ops=self.pre_ops, freed=self.freed)
        assert response["type"] == "ok", response
        self.post_ops, self.pre_ops, self.freed = [], [], []
        data: dict[str, Any] = response["data"]
        return data

    def ask_mid(self, ops: list[dict[str, Any]]) -> dict[str, Any]:
        response = self.raw.call(op="mid_process", ops=ops)
        assert response["type"] == "ok", response
        seqs: dict[str, Any] = response["data"]["seqs"]
        return seqs

    def mid(self, ops: list[dict[str, Any]], seqs: dict[str, Any]) -> None:
        row_bytes = 4 * -(-self.raw.call(op="tokens")["data"]["vocab_size"] // 32)
        for row, op in enumerate(ops):
            if str(op["id"]) not in seqs:
                continue
            sequence, result = self.live[op["id"]], seqs[str(op["id"])]
            if not sequence.note(result):
                self.free(op["id"])
                continue
            splice = result["result"]
            if splice is None:
                sampled = self.lowest(row * row_bytes)
                sequence.tokens.append(sampled)
                self.post_ops.append({"id": op["id"], "tokens": [sampled]})
            else:
                sequence.splice(max(0, splice["backtrack"] - 1), splice["ff_tokens"])
                post = {"tokens": splice["ff_tokens"], "backtrack": splice["backtrack"]}
                self.post_ops.append({"id": op["id"], **post})

    def free(self, seq_id: int) -> None:
        self.end(seq_id)
        self.freed.append(seq_id)


class TurnEngine(V1Engine):
    """Ask all sequences for everything at once, then again for the masks of guests that wanted an action first."""

    def round(self) -> dict[str, Any]:
        fresh = [op["id"] for op in self.pre_ops]
        self.ops = [{"id": seq_id} for seq_id in self.live]
        asked = [seq_id for seq_id in self.live if seq_id not in fresh]
        response = self.turn(post_ops=self.post_ops, pre_ops=self.pre_ops, asked=asked, ops=self.ops, freed=self.freed)
        self.post_ops, self.pre_ops, self.freed = [], [], []
        self.seqs: dict[str, Any] = response["seqs"]
        silent = {"error": "", "logs": "", "result": {"suspend": False, "num_forks": 1, "ff_tokens": []}}
        told = {"post_seqs": {}, "pre_seqs": dict.fromkeys(self.seqs, silent)}
        return response | {part: told[part] | response[part] for part in told}

    def sample(self, forking: dict[int, int]) -> None:
        # Read now: the next command overwrites the rows.
        self.mid([op if op["id"] in self.live else {"id": 0} for op in self.ops], self.seqs)
        super().sample(forking)

    def ask_mid(self, ops: list[dict[str, Any]]) -> dict[str, Any]:
        seqs: dict[str, Any] = self.turn(post_ops=[], pre_ops=[], asked=[], ops=ops, freed=[])["seqs"]
        return seqs

    def turn(self, **fields: Any) -> dict[str, Any]:
        response = self.raw.call(op="turn_process", **fields)
        assert response["type"] == "ok", response
        data: dict[str, Any] = response["data"]
        return data


class BinaryTurnEngine(TurnEngine):
    """Send turns in the binary form of our own engine."""

    def turn(self, **fields: Any) -> dict[str, Any]:
        posts = [PostOp(op["id"], op["tokens"], op.get("backtrack", 0)) for op in fields["post_ops"]]
        ops = [MidOp(op["id"], op.get("clone_id")) for op in fields["ops"]]
        pre_ops = [PreOp(**op) for op in fields["pre_ops"]]
        self.raw.send_bytes(
            turn_message.encode(TurnFields(posts, pre_ops, fields["asked"], ops, fields["freed"], None))
        )
        response = self.raw.receive_bytes()
        assert turn_message.is_turn(response), response
        return turn_message.answer_to_json(response, ops)
