"""The seam between the engine's loop and the place where the model runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from aici_base.errors import UnavailableError
from aici_base.ids import TokenId
from aici_engine.arrays import Array
from aici_engine.cache.ids import PageId
from aici_engine.pooling import FinalStates
from aici_engine.step_input import StepInput


class StateLostError(UnavailableError):
    """The executor has lost the keys and values of all pages, and may get an empty cache back (`Executor.restore`)."""


class PendingStep(Protocol):
    """A forward pass that has begun."""

    def logits(self) -> Array:
        """Wait for the pass, and return logits (R, vocab_size) in f32: `num_logits` rows per chunk, in their order.

        Call once, in the order of `Executor.begin`. The caller may overwrite the rows; the next call of any pending
        step invalidates them. Raises StateLostError if all pages are lost, and another AiciError if only this step
        failed; the contents of pages that this step or a later step wrote are undefined then.
        """

    def states(self) -> FinalStates:
        """Return the final states (S, states_size): `num_states` rows per chunk, in their order.

        Call after `logits`, and only for a step with a chunk that wants states.
        """
        raise NotImplementedError


class Executor(Protocol):
    """Owns the storage of the keys and values, and computes steps in the order of `begin`.

    `depth`: steps worth having in flight; 1 where the computing is in this process. With depth 1, `begin` computes.
    `depth`, `num_pages` and `page_size` never change. `device`: where the logits are, cpu or cuda. `states_size`: the
    numbers of a final state; 0 if the executor gives none.
    `memory_bytes`: the weights and a full cache, where both are in this process. `waits`: other machines compute, so
    that this process may wait for a step. `same_bits`: the logits of a token are the same bits alone and in a chunk.
    `computes_in_c`: `begin` computes in a call of C, beside which other threads of Python run.
    `goes_ahead`: see `go_ahead`. `num_guessed`, `num_right`: rows of passes begun ahead, and those that were used.
    """

    states_size: int = 0

    depth: int
    vocab_size: int
    context: int
    eos_tokens: frozenset[TokenId]
    num_pages: int
    page_size: int
    device: str
    memory_bytes: int = 0
    waits: bool = False
    same_bits: bool = False
    computes_in_c: bool = False
    goes_ahead: bool = False
    num_guessed: int = 0
    num_right: int = 0

    def begin(self, step: StepInput) -> PendingStep:
        """Start a forward pass.

        Raises StateLostError if all pages are lost. After another error nothing of the step is computed, and only this
        step has failed; its `copies` and `forgotten` are not repeated.
        """

    def go_ahead(self, step: StepInput, tokens: Any, chosen: Sequence[int]) -> None:  # noqa: ARG002 see `goes_ahead`
        """Begin the pass that most likely comes next, while a device still chooses its tokens.

        Each chunk of `step` is one token, PENDING. In chunk i, PENDING stands for token `chosen[i]` of `tokens`, which
        the sampler has launched. Called if the executor `goes_ahead`.
        """
        return

    def watch(self, on_lost: Callable[[StateLostError], None]) -> None:
        """From now on, call `on_lost`, on any thread, if the state is lost while no step is in flight.

        A step in flight raises the error instead. An executor that cannot lose its state never calls.
        """

    def restore(self, wait_s: float) -> bool:
        """After StateLostError: wait at most `wait_s` seconds for an empty cache. Return whether the cache is ready.

        Steps that were in flight are gone: nobody asks for their logits, and no sequence is known. Call again until
        the answer is True.
        """

    def discard(self, pages: Sequence[PageId]) -> None:  # noqa: ARG002 for executors in this process
        """The contents of `pages`, in order, are not needed any more. An executor in this process gives their memory
        back; stages of a pipeline keep theirs. Between two steps, with none in flight."""
        return

    def status(self) -> Mapping[str, Any] | None:
        """Return the state of a pipeline as JSON values, for operators; None if this process runs the whole model.

        For any thread.
        """
        return None

    def close(self) -> None: ...
