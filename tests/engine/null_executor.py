"""An executor without tensors: a page is a list of tokens, and logits are a function of the tokens in the pages."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from aici_base.ids import TokenId
from aici_engine.executor import Executor, PendingStep, StateLostError
from aici_engine.step_input import StepInput
from tests.engine.support import EOS, VOCAB_SIZE

if TYPE_CHECKING:
    from aici_base.ids import SeqId

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
        self.device = "cpu"
        self.steps: list[StepInput] = []
        self.in_flight: deque[NullStep] = deque()
        self.most_in_flight = 0
        self.num_computed = 0
        self.known: set[SeqId] = set()
        self.on_lost: Callable[[StateLostError], None] | None = None
        self.closed = False
        self._row = row
        self.pages: list[list[TokenId | None]] = []
        self.forget_all()

    def forget_all(self) -> None:
        self.pages = [[None] * self.page_size for _ in range(self.num_pages)]
        self.known.clear()
        self.in_flight.clear()

    def begin(self, step: StepInput) -> NullStep:
        assert step.chunks
        assert len(self.in_flight) < self.depth
        pending = NullStep(self, step)
        self.steps.append(pending.step)
        self.in_flight.append(pending)
        self.most_in_flight = max(self.most_in_flight, len(self.in_flight))
        return pending

    def compute(self, pending: NullStep) -> torch.Tensor:
        """Carry out the oldest step, which must be `pending`."""
        assert self.in_flight.popleft() is pending
        step = pending.step
        self.known -= set(step.forgotten)
        for copy in step.copies:
            self.pages[copy.target] = list(self.pages[copy.source])
        for chunk in step.chunks:
            self.known.add(chunk.seq_id)
            self.num_computed += len(chunk.tokens)
            for at, token in enumerate(chunk.tokens, chunk.start):
                self.pages[chunk.pages[at // self.page_size]][at % self.page_size] = token
        rows = []
        for chunk in step.chunks:
            tokens = [token for page in chunk.pages for token in self.pages[page]][: chunk.end]
            written = [token for token in tokens if token is not None]
            assert len(written) == chunk.end, "a page is read that was never written"
            rows += [self._row(written[:end]) for end in range(chunk.end - chunk.num_logits + 1, chunk.end + 1)]
        return torch.stack(rows) if rows else torch.zeros(0, VOCAB_SIZE)

    def watch(self, on_lost: Callable[[StateLostError], None]) -> None:
        self.on_lost = on_lost

    def restore(self, wait_s: float) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


class FaultyExecutor(NullExecutor):
    """Fails as `faults` says: call number of `begin` and `logits` together -> kind of fault.

    "begin", "logits": the step fails there. "lost": the state is lost; the next `polls` calls of `restore` are in vain.
    "idle": the state is lost, and the loop is told. A function is called before the step.
    """

    def __init__(self, faults: Mapping[int, str | Callable[[], None]], *, polls: int = 2, **options: Any) -> None:
        super().__init__(**options)
        self.polls = polls
        self._faults = faults
        self.num_calls = 0
        self.is_lost = False
        self.polls_left = 0

    def begin(self, step: StepInput) -> NullStep:
        if self._fault() == "begin":
            raise RuntimeError("no room")
        return super().begin(step)

    def compute(self, pending: NullStep) -> torch.Tensor:
        if self._fault() == "logits":
            assert self.in_flight.popleft() is pending
            for chunk in pending.step.chunks:
                for page in chunk.pages:
                    self.pages[page] = [TokenId(299)] * self.page_size
            raise RuntimeError("a wrong number")
        return super().compute(pending)

    def restore(self, wait_s: float) -> bool:
        assert self.is_lost
        self.polls_left -= 1
        self.is_lost = self.polls_left >= 0
        if self.is_lost:
            time.sleep(min(wait_s, 0.001))
        return not self.is_lost

    def lose(self) -> None:
        """Raises StateLostError."""
        self.forget_all()
        self.is_lost, self.polls_left = True, self.polls
        raise StateLostError("stage 1 is gone")

    def lose_idle(self) -> None:
        """Lose the state while no step is in flight. Any thread may call this."""
        with contextlib.suppress(StateLostError):
            self.lose()
        assert self.on_lost is not None
        self.on_lost(StateLostError("stage 1 is gone"))

    def _fault(self) -> str:
        """Return "begin", "logits" or nothing. Raises StateLostError."""
        fault = self._faults.get(self.num_calls, "")
        self.num_calls += 1
        if self.is_lost:
            raise StateLostError("stage 1 is gone")
        if callable(fault):
            fault()
            return ""
        if fault == "idle":
            self.lose_idle()
        if fault in ("lost", "idle"):
            self.lose()
        return fault
