"""Random regexes through the real runtime, with random logits for a model, and an oracle beside every step.

The oracle is an automaton over code points that shares nothing with the guest (see `tests/support/regex_oracle.py`).
`.` and negated classes stand for a whole code point, and `\\d \\w \\s` are ASCII, as in Python with `re.ASCII`.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aici_base.ids import SeqId, TokenId
from aici_base.tokenizer.tokens import read_vocabulary
from aici_controllers.catalog import guest_path
from aici_runtime.client import Runtime, RuntimeConfig
from aici_runtime.wire import MidOp, PostOp, Pre, PreOp
from tests.support.guests import shipped_guest
from tests.support.regex_oracle import Automaton, Node, Position, render
from tests.support.regexes import ALPHABET, REGEXES
from tests.support.vocabulary import write_tokenizer

MAX_STEPS = 24
BATCH = 6
NUM_BATCHES = 50  # of BATCH regexes: 300 in all


@dataclass
class World:
    runtime: Runtime
    module_id: str
    vocabulary: list[bytes]
    num_started: int = 0
    num_finished: int = 0
    num_forced: int = 0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    chance = random.Random(0)
    texts = {"".join(chance.choices(ALPHABET, k=chance.randint(2, 5))).encode() for _ in range(120)}
    cut = {text[chance.randint(0, 2) : -1 or None] for text in list(texts)[:40]}
    folder = write_tokenizer(
        tmp_path_factory.mktemp("tokenizer"), sorted(text for text in texts | cut if len(text) > 1)
    )
    vocabulary = read_vocabulary((folder / "tokenizer.json").read_bytes()).token_bytes
    shipped_guest("regex")
    with Runtime(RuntimeConfig(tokenizer=folder)) as runtime:
        runtime.wait_ready()
        yield World(runtime, runtime.mk_module(guest_path("regex").read_bytes()).module_id, list(vocabulary))


@dataclass
class Run:
    """A sequence: the constraint, the oracle's position in the constraint, and the generated text."""

    seq_id: SeqId
    node: Node
    automaton: Automaton
    position: Position
    text: bytes = b""
    ended: bool = False
    finished: bool = False
    steps: dict[tuple[Position, int], Position | None] = field(default_factory=dict)

    def after(self, position: Position | None, text: bytes) -> Position | None:
        for byte in text:
            if position is None:
                return None
            key = (position, byte)
            if key not in self.steps:
                self.steps[key] = position.push(self.automaton, bytes([byte]))
            position = self.steps[key]
        return position

    def viable(self, vocabulary: list[bytes], eos: TokenId) -> set[int]:
        tokens = {t for t, raw in enumerate(vocabulary) if raw and self.after(self.position, raw) is not None}
        return tokens | {eos} if self.position.accepts(self.automaton) else tokens


@settings(
    max_examples=NUM_BATCHES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(nodes=st.lists(REGEXES, min_size=BATCH, max_size=BATCH), seed=st.integers(0, 2**32))
def test_masks_are_exact_and_finished_outputs_match(world: World, nodes: list[Node], seed: int) -> None:
    runtime, chance = world.runtime, random.Random(seed)
    runs = [_start(world, node) for node in nodes]
    fresh = [PreOp(run.seq_id, f"request-{run.seq_id}") for run in runs]
    posts: list[PostOp] = []
    try:
        for _ in range(MAX_STEPS):
            told = runtime.post_pre_process(post_ops=posts, pre_ops=fresh, freed=[])
            for op in posts:
                _check_stop(runs, op, told.post[op.id].result)
            fresh, posts = [], []
            for run in runs:
                if not run.ended:
                    _force(world, run, told.pre[run.seq_id].result)
            live = [run for run in runs if not run.ended]
            if not live:
                break
            runtime.send_mid([MidOp(run.seq_id) for run in live])
            mid = runtime.recv_mid()
            with runtime.mask_rows(len(live)) as rows:
                masks = [bytes(rows.tobytes()[i * rows.shape[1] : (i + 1) * rows.shape[1]]) for i in range(len(live))]
            for run, mask in zip(live, masks, strict=True):
                assert mid.seqs[run.seq_id].error == "", render(run.node)
                posts.append(_sample(world, run, mask, chance))
    finally:
        runtime.post_pre_process(post_ops=[], pre_ops=fresh, freed=[run.seq_id for run in runs])
    world.num_finished += sum(run.finished for run in runs)


def _start(world: World, node: Node) -> Run:
    world.num_started += 1
    automaton = Automaton.of(node)
    run = Run(SeqId(world.num_started), node, automaton, Position(automaton.initial()))
    world.runtime.instantiate(
        req_id=f"request-{run.seq_id}", prompt=[TokenId(1)], module_id=world.module_id, module_arg=render(node)
    ).result()
    return run


def _force(world: World, run: Run, pre: Pre | None) -> None:
    """The guest forces only bytes without an alternative, and stops if the forced bytes are the last bytes."""
    assert pre is not None
    text = b"".join(world.vocabulary[token] for token in pre.ff_tokens)
    for number in range(len(text)):
        ways = [byte for byte in range(256) if run.after(run.position, text[:number] + bytes([byte])) is not None]
        assert ways == [text[number]], (render(run.node), run.text, text)
        before = run.after(run.position, text[:number])
        assert before is not None
        assert not before.accepts(run.automaton), (render(run.node), run.text, text)
    after = run.after(run.position, text)
    assert after is not None
    run.position, run.text = after, run.text + text
    world.num_forced += len(text)
    stops = bool(text) and run.position.is_final(run.automaton)
    assert (pre.num_forks == 0) == stops, (render(run.node), run.text, pre)
    if stops:
        run.ended = run.finished = True
        assert re.fullmatch(render(run.node), run.text.decode(), re.ASCII), (render(run.node), run.text)


def _sample(world: World, run: Run, mask: bytes, chance: random.Random) -> PostOp:
    """Compare the mask, then take the allowed token of the highest random logit."""
    eos = world.runtime.eos_token
    bits = int.from_bytes(mask, "little")
    allowed = {token for token in range(len(world.vocabulary)) if bits >> token & 1}
    assert allowed == run.viable(world.vocabulary, eos), (render(run.node), run.text)
    token = max(sorted(allowed), key=lambda _: chance.gauss(0, 1))
    after = run.after(run.position, world.vocabulary[token])
    assert after is not None
    run.position = after
    run.text += world.vocabulary[token]
    run.ended = token == eos
    return PostOp(run.seq_id, [TokenId(token)])


def _check_stop(runs: list[Run], op: PostOp, result: object) -> None:
    """The guest stops at EOS, and when nothing but EOS could follow; the text at a stop matches according to
    Python's `re`."""
    run = next(run for run in runs if run.seq_id == op.id)
    stopped = getattr(result, "stop", None)
    assert stopped is (run.ended or run.position.is_final(run.automaton)), (render(run.node), run.text, result)
    if stopped:
        run.ended = run.finished = True
        assert re.fullmatch(render(run.node), run.text.decode(), re.ASCII), (render(run.node), run.text)


def test_most_sequences_finished(world: World) -> None:
    """The test above must not pass because all sequences were cut off or had no forced token."""
    assert world.num_started >= NUM_BATCHES * BATCH
    assert world.num_finished > world.num_started / 2
    assert world.num_forced > 0
