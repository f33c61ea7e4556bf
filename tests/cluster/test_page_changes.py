"""The stages' page tables follow the cache's, whatever the engine does."""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cache.kvcache import KVCache
from aici_engine.cluster import frames
from aici_engine.cluster.frames import StepFrame, StepLimits, check_step
from aici_engine.cluster.page_changes import PageTableMirror, PageTableSender
from aici_engine.step_input import Chunk, PageCopy, StepInput

PAGE_SIZE, NUM_PAGES, CONTEXT = 4, 24, 64
LIMITS = StepLimits(
    num_pages=NUM_PAGES,
    page_size=PAGE_SIZE,
    num_stages=2,
    max_batch_tokens=1000,
    max_context=CONTEXT,
    token_bytes=4,
    vocab_size=2,
)
TOKENS = st.lists(st.integers(0, 1).map(TokenId), min_size=1, max_size=20)


class Driver(RuleBasedStateMachine):
    """A scheduler without a plan: does to the cache whatever it allows, in steps of any sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = KVCache(num_pages=NUM_PAGES, page_size=PAGE_SIZE)
        self.tokens: dict[SeqId, list[TokenId]] = {}
        self.ids = itertools.count(1)
        self.sender, self.mirror = PageTableSender(), PageTableMirror()
        self.number = self.num_gone = 0

    def pick(self, data: st.DataObject) -> SeqId:
        return data.draw(st.sampled_from(sorted(self.tokens)))

    @rule(tokens=TOKENS, salt=st.sampled_from([None, "a"]))
    def add(self, tokens: list[TokenId], salt: str | None) -> None:
        seq_id = SeqId(next(self.ids))
        self.cache.add(seq_id, salt)
        self.cache.extend(seq_id, tokens, len(tokens) - 1)
        self.tokens[seq_id] = tokens

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Compute some tokens of some sequences; those without room are left out."""
        order = data.draw(st.permutations(sorted(self.tokens)))
        chunks = []
        for seq_id in order[: data.draw(st.integers(1, len(order)))]:
            tokens, start = self.tokens[seq_id], self.cache.num_cached(seq_id)
            if start >= len(tokens):
                tokens.append(TokenId(0))
            end = data.draw(st.integers(start + 1, len(tokens)))
            if end <= CONTEXT and self.cache.reserve(seq_id, end):
                chunks.append((seq_id, start, end))
        self.send(
            [
                Chunk(seq, self.tokens[seq][start:end], start, self.cache.page_table(seq), 1)
                for seq, start, end in chunks
            ]
        )
        for seq_id, _, end in chunks:
            self.cache.advance(seq_id, self.tokens[seq_id], end)

    def send(self, chunks: list[Chunk]) -> None:
        if not chunks:
            return
        self.number += 1
        copies = [PageCopy(*copy) for copy in self.cache.take_copies()]
        step = StepInput(chunks, copies, self.cache.take_forgotten())
        self.num_gone = 0
        header = frames.encode(self.sender.frame(step, epoch=1, number=self.number))
        ids = [token for chunk in chunks for token in chunk.tokens]
        frame = frames.decode_to_stage(header)
        assert isinstance(frame, StepFrame)
        check_step(frame, b"".join(token.to_bytes(4, "little") for token in ids), LIMITS, self.mirror.num_held)
        got = self.mirror.apply(frame, ids)
        assert got.chunks == [chunk._replace(pages=list(chunk.pages)) for chunk in chunks]
        assert [list(chunk.pages) for chunk in got.chunks] == [self.cache.page_table(c.seq_id) for c in chunks]
        assert (got.copies, got.forgotten) == (step.copies, step.forgotten)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        parent, child = self.pick(data), SeqId(next(self.ids))
        self.cache.fork(parent, child)
        self.tokens[child] = list(self.tokens[parent])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), added=TOKENS)
    def splice(self, data: st.DataObject, added: list[TokenId]) -> None:
        seq_id = self.pick(data)
        keep = data.draw(st.integers(0, len(self.tokens[seq_id])))
        self.cache.truncate(seq_id, keep)
        self.tokens[seq_id] = [*self.tokens[seq_id][:keep], *added][:CONTEXT]
        self.cache.extend(seq_id, self.tokens[seq_id], len(self.tokens[seq_id]) - 1)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        """Take all pages of a sequence; the sequence stays, and is computed again."""
        seq_id = self.pick(data)
        self.free(seq_id)
        self.cache.add(seq_id)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        seq_id = self.pick(data)
        self.free(seq_id)
        del self.tokens[seq_id]

    def free(self, seq_id: SeqId) -> None:
        self.cache.free(seq_id)
        self.num_gone += 1

    @invariant()
    def bounded(self) -> None:
        self.cache.check_integrity()
        assert len(self.mirror) <= len(self.tokens) + self.num_gone


TestDriver = Driver.TestCase
TestDriver.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_decoding_sends_a_page_in_sixteen_steps() -> None:
    sender = PageTableSender()
    for length in range(1, 321):
        pages = [PageId(page) for page in range(-(-length // 16))]
        frame = sender.frame(StepInput([Chunk(SeqId(1), [TokenId(0)], length - 1, pages, 1)]), epoch=1, number=length)
        assert len(frame.chunks[0].pages) == int(length % 16 == 1)
    assert sender.num_sent == 20
    assert sender.num_full == 16 * sum(range(1, 21))
