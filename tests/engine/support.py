"""Tiny models with random weights, and a controller runtime with Python objects for guests."""

import copy
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from aici_base.errors import AiciError, NotFoundError, RuntimeDiedError
from aici_base.ids import SeqId, TokenId
from aici_engine.control.runtime import ControllerRuntime
from aici_engine.events import TokenEvent
from aici_engine.request import RequestHandle
from aici_runtime.wire import MidOp, Patience, Post, PostOp, Pre, PreOp, SeqResult, Splice, Turn

VOCAB_SIZE = 300
"""Tokens 0 to 255 are the bytes 0 to 255, 256 is EOS, further tokens have no bytes."""
EOS = TokenId(256)
EOT = TokenId(257)
GO_ON = Pre(suspend=False, num_forks=1, ff_tokens=())


def alphabet() -> dict[int, str]:
    plain = [*range(33, 127), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(0x100 + k) for k, byte in enumerate(others)}


def encode(text: str) -> list[TokenId]:
    return [TokenId(byte) for byte in text.encode()]


def write_tokenizer(folder: Path) -> None:
    special = [
        {"id": token, "content": name, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for token, name in ((EOS, "<|endoftext|>"), (EOT, "<|eot|>"))
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": {char: byte for byte, char in alphabet().items()}, "merges": []}
    document = {"version": "1.0", "added_tokens": special, "pre_tokenizer": level, "decoder": level, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(document))


def write_tiny_model(
    folder: Path, *, seed: int = 0, context: int = 256, num_layers: int = 2, num_heads: int = 4, hidden_size: int = 32
) -> Path:
    """Write a small Llama. The logits are spread widely, so greedy choices are no ties. The kernels run a model with 2
    heads."""
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE, hidden_size=hidden_size, intermediate_size=64, num_hidden_layers=num_layers,
        num_attention_heads=num_heads, num_key_value_heads=2, max_position_embeddings=context, initializer_range=0.4,
        bos_token_id=None, eos_token_id=int(EOS), pad_token_id=int(EOS),
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=[int(EOS), int(EOT)], pad_token_id=int(EOS))
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def wait_for_token(handle: RequestHandle) -> None:
    """Wait until the request runs."""
    next(event for event in handle.events() if isinstance(event, TokenEvent))


@dataclass
class Guest:
    """Allows all tokens, for ever. Subclasses override the callbacks.

    `told`: the arguments of `post` so far. `says`: text to log next. `branch`: the number of the fork in this step, 0
    without a fork. `variables`: shared with all forks.
    """

    argument: Any = None
    told: list[tuple[list[TokenId], int]] = field(default_factory=list)
    says: str = ""
    branch: int = 0
    seed: int = -1
    variables: dict[str, str] = field(default_factory=dict)

    def init_prompt(self, prompt: list[TokenId]) -> None: ...

    def pre(self) -> Pre | str:
        """A string is the error of a failed guest."""
        return GO_ON

    def mid(self) -> Splice | Iterable[int] | str:
        return range(VOCAB_SIZE)

    def post(self, tokens: list[TokenId], backtrack: int) -> bool:
        """True: stop."""
        self.told.append((tokens, backtrack))
        return False

    def clone(self) -> "Guest":
        return copy.deepcopy(self, {id(self.variables): self.variables})


@dataclass
class Refused(Guest):
    def pre(self) -> str:
        return "Worker: refused"


class ScriptedRuntime(ControllerRuntime):
    """A controller runtime that checks the order of calls. `live`: the guests that were not freed."""

    vocab_size = VOCAB_SIZE
    eos_token = EOS

    def __init__(self, guests: dict[str, Callable[..., Guest]]) -> None:
        self.guests = guests
        self._engine_numbers = itertools.count(1)
        self.max_guests = 1000
        self.max_forks = 16
        self._started: dict[str, Guest] = {}
        self.live: dict[SeqId, Guest] = {}
        self.all: list[Guest] = []
        self.rounds = 0
        self.dies_at_round = 0
        self.hold = threading.Event()
        self.hold.set()
        self.refuses_at_round = 0
        self.breaks_at_round = 0
        self._sent: tuple[list[PostOp], list[PreOp], list[SeqId], list[MidOp], list[SeqId]] | None = None
        self.guesses = self.misses = 0
        """`guesses`: how often a guest was taken for calm. `misses`: how often the guest did not just go on."""
        self._masks = bytearray()
        self._answer: Turn | None = None
        """To a calm turn, if not usual."""

    def add_engine(self) -> int:
        return next(self._engine_numbers)

    def instantiate(
        self, *, req_id: str, prompt: Sequence[TokenId], module_id: str, module_arg: object, seed: int, user: str
    ) -> "Future[None]":
        future: Future[None] = Future()
        if module_id == "strict":
            orjson.dumps(module_arg)

        def start() -> None:
            self.hold.wait(10)
            if len(self._started) + len(self.live) >= self.max_guests:
                future.set_exception(AiciError("all slots for guests are taken"))
                return
            if module_id not in self.guests:
                future.set_exception(NotFoundError(f"no controller {module_id}"))
                return
            guest = self.guests[module_id](module_arg)
            guest.seed = seed
            guest.init_prompt(list(prompt))
            self._started[req_id] = guest
            self.all.append(guest)
            future.set_result(None)

        threading.Thread(target=start, daemon=True).start()
        return future

    def discard(self, req_id: str) -> None:
        self._started.pop(req_id, None)

    def send_turn(
        self,
        *,
        post_ops: Sequence[PostOp],
        pre_ops: Sequence[PreOp],
        asked: Sequence[SeqId],
        ops: Sequence[MidOp],
        freed: Sequence[SeqId],
        patience: Patience | None = None,
    ) -> None:
        assert self._sent is None, "send_turn before recv_turn"
        # Masks are valid until now.
        self._masks[:] = bytes(len(self._masks))
        assert pre_ops or asked or ops or freed
        assert {op.id for op in post_ops} <= set(asked)
        assert not {op.clone_id for op in ops} & set(asked)
        self._sent = list(post_ops), list(pre_ops), list(asked), list(ops), list(freed)

    def recv_calm(self) -> list[int] | None:
        turn = self.recv_turn()
        is_usual = not (turn.post or turn.pre or any(any(said[:-1]) for said in turn.mid.values()))
        self._answer = None if is_usual else turn
        return [said.micros for said in turn.mid.values()] if is_usual else None

    def recv_turn(self) -> Turn:
        if self._answer is not None:
            answer, self._answer = self._answer, None
            return answer
        assert self._sent is not None, "recv_turn without send_turn"
        (post_ops, pre_ops, asked, ops, freed), self._sent = self._sent, None
        if pre_ops or asked or freed:
            self._count_round()
        for op in pre_ops:
            assert op.id not in self.live
            self.live[op.id] = self._started.pop(op.req_id)
        for each in ops:
            self._clone(each, ops)
        post = {}
        for told in post_ops:
            guest = self.live[told.id]
            post[told.id] = noted(guest, result(Post(guest.post(list(told.tokens), told.backtrack))))
        pre = {}
        for seq_id in [*asked, *(op.id for op in pre_ops)]:
            pre[seq_id] = noted(self.live[seq_id], result(self.live[seq_id].pre(), GO_ON))
        go_on = {i for i, said in pre.items() if said.result == GO_ON and not said.error}
        go_on -= {i for i, said in post.items() if said.error or (said.result and said.result.stop)}
        mid = {}
        self._masks = bytearray()
        for each in ops:
            bits = 0
            if each.id not in pre or each.id in go_on:
                mid[each.id], bits = self._mid(each.id)
            self._masks += bits.to_bytes(4 * ((VOCAB_SIZE + 31) // 32), "little")
        for seq_id in freed:
            del self.live[seq_id]
        for seq_id in mid.keys() & pre.keys():
            if not any(said.logs or said.storage for said in (pre[seq_id], post.get(seq_id, pre[seq_id]))):
                del pre[seq_id]
                post.pop(seq_id, None)
        self.guesses += len(set(asked) & {op.id for op in ops})
        self.misses += len(set(asked) & {op.id for op in ops} - mid.keys())
        return Turn(post, pre, mid)

    @property
    def asked_for_masks(self) -> list[MidOp]:
        """The ops of the turn without an answer."""
        return [] if self._sent is None else self._sent[3]

    def _count_round(self) -> None:
        self.rounds += 1
        if self.rounds == self.dies_at_round:
            raise RuntimeDiedError("the runtime died")
        if self.rounds == self.breaks_at_round:
            raise KeyError("a bug")
        if self.rounds == self.refuses_at_round:
            raise AiciError("no such round")

    def _mid(self, seq_id: SeqId) -> tuple[SeqResult[Splice], int]:
        guest = self.live[seq_id]
        answer = f"Worker: too many forks (max={self.max_forks})" if isinstance(guest, Refused) else guest.mid()
        if isinstance(answer, (Splice, str)):
            return result(answer), 0
        return noted(guest, SeqResult(None, "", (), "", 10)), sum(1 << token for token in answer)

    def _clone(self, op: MidOp, ops: list[MidOp]) -> None:
        """Clone a guest before any guest of the turn computes, as the runtime does."""
        if op.clone_id is None:
            if op.id in self.live:
                self.live[op.id].branch = 0
            return
        assert op.id not in self.live
        parent = self.live[op.clone_id]
        family = [guest for guest in self.live.values() if guest.variables is parent.variables]
        guest = parent.clone() if len(family) < self.max_forks else Refused()
        guest.branch = [each.id for each in ops if op.clone_id in (each.id, each.clone_id)].index(op.id)
        self.live[op.id] = guest
        self.all.append(guest)

    def mask_rows(self, n: int) -> memoryview:
        assert n * 40 == len(self._masks)
        return memoryview(self._masks).cast("B", (n, 40))


def result(value: Any, failed: Any = None) -> SeqResult[Any]:
    if isinstance(value, str):
        return SeqResult(failed, value, (), f"log\n{value}", 10)
    return SeqResult(value, "", (), "", 10)


def noted(guest: Guest, result: SeqResult[Any]) -> SeqResult[Any]:
    """Return `result` with the guest's text `says` in the logs and in a variable."""
    says, guest.says = guest.says, ""
    storage = ({"WriteVar": {"name": "said", "value": says.encode().hex(), "op": "Set"}},) if says else ()
    return result._replace(logs=result.logs + says, storage=storage)
