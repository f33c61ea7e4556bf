"""Measure what guests with interpreters cost to start, per token and per fork, beside the plain regex guest."""

import json
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from aici_base.errors import ControllerError
from aici_base.ids import SeqId, TokenId
from aici_controllers.catalog import guest_path
from aici_controllers.in_process_guest import InProcessGuest, InProcessRuntime
from aici_controllers.process_memory import pss_bytes
from aici_runtime.client import Runtime
from aici_runtime.wire import MidOp, PostOp, PreOp

NATIVE: Final = {
    "regex": r"(.|\n)*",
    "declctrl": json.dumps({"steps": [{"Gen": {"max_tokens": 100000}}]}),
    "jsctrl": "await gen({ maxTokens: 100000 });",
    "pyctrl": "import aici\nawait aici.gen_tokens(max_tokens=100000)\n",
}
"""Programs that allow everything, computed by the guest's own code."""

INTERPRETED: Final = {
    "jsctrl": """
class Anything extends NextToken {
  mask = new TokenSet();
  constructor() { super(); this.mask.setAll(true); }
  midProcess() { return MidProcessResult.bias(this.mask); }
  postProcess(backtrack, tokens) { this.count = (this.count ?? 0) + tokens.length; }
}
const anything = new Anything();
for (;;) await anything.run();
""",
    "pyctrl": """
import aici

class Anything(aici.NextToken):
    def __init__(self):
        super().__init__()
        self.mask = aici.TokenSet()
        self.mask.set_all(True)
        self.count = 0

    def mid_process(self):
        return aici.MidProcessResult.bias(self.mask)

    def post_process(self, backtrack, tokens):
        self.count += len(tokens)

step = Anything()
while True:
    await step
""",
}
"""Programs that decide about every token themselves: two calls of the interpreter per step."""

_NUM_FORKS: Final = 8
_FORK_STEPS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestRow:
    """Medians. `ready_ms`: from a request until the guest can be asked for a mask, for the second and later requests;
    `first_ms`: for the first request, which loads the module and reads the vocabulary. `step_us`: post, pre and mid of
    one token. `fork_bytes`: growth of all processes' memory by a fork (proportional set size)."""

    guest: str
    wasm_bytes: int
    compile_ms: float
    first_ms: float
    ready_ms: float
    memory_bytes: int
    step_us: float
    interpreted_us: float | None
    fork_bytes: int

    def document(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    guests: list[str], in_process: InProcessRuntime, runtime: Runtime, *, token: TokenId, rounds: int, steps: int
) -> list[GuestRow]:
    """Measure every guest once per round, in turn."""
    compile_s = {guest: in_process.compile(guest) for guest in guests}
    for guest in guests:
        in_process.keep_snapshot(guest)
    first: dict[str, list[float]] = {guest: [] for guest in guests}
    ready: dict[str, list[float]] = {guest: [] for guest in guests}
    native: dict[str, list[float]] = {guest: [] for guest in guests}
    interpreted: dict[str, list[float]] = {guest: [] for guest in guests}
    memory = {}
    for _ in range(rounds):
        for guest in guests:
            started = time.perf_counter()
            in_process.start(guest, NATIVE[guest], is_first=True)
            first[guest].append(time.perf_counter() - started)
            started = time.perf_counter()
            instance = in_process.start(guest, NATIVE[guest])
            ready[guest].append(time.perf_counter() - started)
            native[guest].append(_step_s(instance, token, steps))
            memory[guest] = instance.memory_bytes() or 0
            if guest in INTERPRETED:
                interpreted[guest].append(_step_s(in_process.start(guest, INTERPRETED[guest]), token, steps))
    return [
        GuestRow(
            guest=guest,
            wasm_bytes=guest_path(guest).stat().st_size,
            compile_ms=compile_s[guest] * 1e3,
            first_ms=statistics.median(first[guest]) * 1e3,
            ready_ms=statistics.median(ready[guest]) * 1e3,
            memory_bytes=memory[guest],
            step_us=statistics.median(native[guest]) * 1e6,
            interpreted_us=statistics.median(interpreted[guest]) * 1e6 if interpreted[guest] else None,
            fork_bytes=_fork_bytes(runtime, guest, SeqId(1 + number * (_NUM_FORKS + 1)), token),
        )
        for number, guest in enumerate(guests)
    ]


def _step_s(guest: InProcessGuest, token: TokenId, steps: int) -> float:
    guest.mask()
    times = []
    for _ in range(steps):
        started = time.perf_counter()
        guest.consume(token)
        guest.mask()
        times.append(time.perf_counter() - started)
        # A guest that has ended would look fast.
        if not guest.bits()[token >> 3] >> (token & 7) & 1:
            raise ControllerError("the guest did not go on: what was timed is no step")
    return statistics.median(times)


def _fork_bytes(runtime: Runtime, guest: str, first: SeqId, token: TokenId) -> int:
    module_id = runtime.mk_module(guest_path(guest).read_bytes()).module_id
    argument = INTERPRETED.get(guest, NATIVE[guest])
    runtime.instantiate(req_id=f"bench-{guest}", prompt=[token], module_id=module_id, module_arg=argument).result()
    runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(first, f"bench-{guest}")], freed=[])
    forks = [SeqId(first + 1 + number) for number in range(_NUM_FORKS)]

    def step(ops: list[MidOp]) -> None:
        runtime.send_mid(ops)
        for result in runtime.recv_mid().seqs.values():
            if result.error or result.result is not None:
                raise ControllerError(f"the guest {guest} did not go on: {result.error or result.result}")
        posts = [PostOp(op.id, [token]) for op in ops]
        runtime.post_pre_process(post_ops=posts, pre_ops=[], freed=[])

    for _ in range(_FORK_STEPS):
        step([MidOp(first)])
    before = pss_bytes(runtime.pid)
    step([MidOp(first), *(MidOp(fork, first) for fork in forks)])
    for _ in range(_FORK_STEPS):
        step([MidOp(seq_id) for seq_id in (first, *forks)])
    grown = pss_bytes(runtime.pid) - before
    runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[first, *forks])
    return max(0, grown) // _NUM_FORKS
