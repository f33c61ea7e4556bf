"""An executor without tensors: a page is a list of tokens, and logits are a function of the tokens in the pages."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from aici_engine.executor import Executor, PendingStep, StateLostError
from aici_engine.step_input import StepInput
from tests.engine.support import EOS, VOCAB_SIZE

if TYPE_CHECKING:
    from aici_base.ids import SeqId, TokenId

Tokens = Sequence[int]
TABLE = 3 * torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=torch.Generator().manual_seed(1))


def by_last_token(tokens: Tokens) -> torch.Tensor:
    return TABLE[tokens[-1]]


def by_all_tokens(tokens: Tokens) -> torch.Tensor:
    """A wrong token anywhere in the pages changes the text."""
    return TABLE[hash(tuple(tokens)) % VOCAB_SIZE]


class NullStep(PendingStep):
    def __init__(self, executor: "NullExecutor", step: StepInput) -> None:
        # The page tables belong to the cache until the next change.
        chunks = [chunk._replace(tokens=list(chunk.tokens), pages=list(chunk.pages)) for chunk in step.chunks]
        self.step = step._replace(chunks=chunks)
        self._executor = executor

    def logits(self) -> torch.Tensor:
        return self._executor.compute(self)


class NullExecutor(Executor):
    """Computes a step as late as possible, when the logits are asked for: a step sees what earlier steps wrote.

    `steps`: the steps so far. `num_computed`: tokens computed so far. `known`: the sequences with a page table.
    """

    def __init__(
        self,
        *,
        num_pages: int = 64,
        page_size: int = 4,
        depth: int = 1,
        row: Callable[[Tokens], torch.Tensor] = by_last_token,
    ) -> None:
        self.depth = depth
        self.vocab_size = VOCAB_SIZE
        self.context = 4096
        self.eos_tokens = frozenset({EOS})
        self.num_pages = num_pages
        self.page_size = page_size
        self.device = torch.device("cpu")
        self.steps: list[StepInput] = []
        self.in_flight: deque[NullStep] = deque()
        self.num_computed = 0
        self.known: set[SeqId] = set()
        self.closed = False
        self._row = row
        self._pages: list[list[TokenId | None]] = []
        self.forget_all()

    def forget_all(self) -> None:
        self._pages = [[None] * self.page_size for _ in range(self.num_pages)]
        self.known.clear()
        self.in_flight.clear()

    def begin(self, step: StepInput) -> NullStep:
        assert step.chunks
        assert len(self.in_flight) < self.depth
        pending = NullStep(self, step)
        self.steps.append(pending.step)
        self.in_flight.append(pending)
        return pending

    def compute(self, pending: NullStep) -> torch.Tensor:
        """Carry out the oldest step, which must be `pending`."""
        assert self.in_flight.popleft() is pending
        step = pending.step
        self.known -= set(step.forgotten)
        for copy in step.copies:
            self._pages[copy.target] = list(self._pages[copy.source])
        for chunk in step.chunks:
            self.known.add(chunk.seq_id)
            self.num_computed += len(chunk.tokens)
            for at, token in enumerate(chunk.tokens, chunk.start):
                self._pages[chunk.pages[at // self.page_size]][at % self.page_size] = token
        rows = []
        for chunk in step.chunks:
            tokens = [token for page in chunk.pages for token in self._pages[page]][: chunk.end]
            written = [token for token in tokens if token is not None]
            assert len(written) == chunk.end, "a page is read that was never written"
            rows += [self._row(written[:end]) for end in range(chunk.end - chunk.num_logits + 1, chunk.end + 1)]
        return torch.stack(rows) if rows else torch.zeros(0, VOCAB_SIZE)

    def watch(self, on_lost: Callable[[StateLostError], None]) -> None: ...

    def restore(self, wait_s: float) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
