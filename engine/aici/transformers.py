"""A controller for `generate` of transformers, as a logits processor.

`generate` appends one token a step to every row and takes none back, so a controller may allow tokens, force tokens and
stop. A controller that removes tokens, forks or waits ends with an error that names what it did.
"""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from transformers import LogitsProcessor, PreTrainedTokenizerBase

from aici.append_only import AppendOnlyGuests, Bits
from aici.constraints import Constraint
from aici.errors import UsageError
from aici.local import bring_module
from aici_base.errors import AiciError
from aici_base.ids import TokenId
from aici_controllers.store import Store
from aici_engine.sample.torch_pipeline import TensorMasks
from aici_runtime.client import Runtime, RuntimeConfig


@dataclass(slots=True)
class _Row:
    """A row of `input_ids`: the key of its guest, the number of tokens, and the last one."""

    key: str
    num_tokens: int = 0
    last: int | None = None


class ControllerProcessor(LogitsProcessor):
    """Runs one guest for each row. A processor serves one call of `generate`; `reset` makes it ready for the next.

    `tokenizer`: the model's, or its folder. `eos_tokens`: the tokens besides the tokenizer's own that end a row: those
    of the generation config. `pad_token`: leading pads are no part of the prompt that the controller sees. An EOS ends
    its row, also where the controller would go on. Rows may not be reordered: no beam search, no assisted generation.

    Raises ControllerError for a controller that fails or asks for what `generate` has not, and UsageError for rows that
    do not continue those of the last step.

        with ControllerProcessor(aici.regex(r"[0-9]{4}"), tokenizer) as processor:
            model.generate(**inputs, logits_processor=[processor], max_new_tokens=8)
    """

    def __init__(
        self,
        constraint: Constraint[Any],
        tokenizer: PreTrainedTokenizerBase | str | Path,
        *,
        eos_tokens: Iterable[int] = (),
        pad_token: int | None = None,
        seed: int = 0,
    ) -> None:
        self._argument = constraint.argument
        self._eos_tokens = [TokenId(token) for token in eos_tokens]
        self._pad_token = pad_token
        self._seed = seed
        self._rows: list[_Row] = []
        self._num_guests = 0
        self._masks: TensorMasks | None = None
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(_folder_of(tokenizer))
            self._runtime = stack.enter_context(Runtime(RuntimeConfig(tokenizer=folder)))
            self._runtime.wait_ready()
            self._module_id = bring_module(self._runtime, Store(), constraint.controller)
            self._guests = AppendOnlyGuests(self._runtime, engine="generate", eos_tokens=self._eos_tokens)
            self._stack = stack.pop_all()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return `scores` (rows, vocabulary) with -inf for tokens that the guests do not allow.

        `input_ids`: (rows, tokens).
        """
        tokens = input_ids.tolist()
        if not self._rows:
            self._begin(tokens)
        self._guests.send(self._taken(tokens))
        answers = self._guests.receive()
        return self._applied([_mask(answers[row.key]) for row in self._rows], scores)

    def reset(self) -> None:
        """End the guests. The next call begins with new rows."""
        for row in self._rows:
            self._guests.free(row.key)
        self._guests.flush()
        self._rows = []

    def close(self) -> None:
        """End the runtime. Idempotent."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, tokens: list[list[int]]) -> None:
        """Start a guest for each row, and bind the guests."""
        started = []
        for row in tokens:
            self._num_guests += 1
            key = str(self._num_guests)
            kept = next((place for place, token in enumerate(row) if token != self._pad_token), len(row))
            started.append(
                self._guests.start(key, row[kept:], module_id=self._module_id, argument=self._argument, seed=self._seed)
            )
            self._rows.append(_Row(key, num_tokens=len(row) - 1))
        for guest in started:
            guest.result()
        self._guests.bind([row.key for row in self._rows])

    def _taken(self, tokens: list[list[int]]) -> dict[str, list[int]]:
        """Return the tokens that `generate` has appended since the last step, by the keys of the rows."""
        continued = len(tokens) == len(self._rows) and all(
            len(ids) == row.num_tokens + 1 and (row.last is None or ids[-2] == row.last)
            for ids, row in zip(tokens, self._rows, strict=False)
        )
        if not continued:
            raise UsageError(
                "the rows are not those of the last step, each with one more token",
                hint="call reset() between two calls of generate; beam search and assisted generation are not served",
            )
        taken = {}
        for ids, row in zip(tokens, self._rows, strict=True):
            taken[row.key] = [] if row.last is None else [ids[-1]]
            row.num_tokens, row.last = len(ids), ids[-1]
        return taken

    def _applied(self, masks: list[Bits], scores: torch.Tensor) -> torch.Tensor:
        if self._masks is None:
            self._masks = TensorMasks(
                vocab_size=self._runtime.vocab_size,
                eos_token=self._runtime.eos_token,
                all_eos=[self._runtime.eos_token, *self._eos_tokens],
                num_logits=scores.shape[1],
                device=scores.device,
            )
        is_open = self._masks.is_open(torch.from_numpy(np.stack(masks)).to(scores.device))
        return scores.masked_fill(~is_open, -torch.inf)


def _mask(answer: Bits | AiciError) -> Bits:
    if isinstance(answer, AiciError):
        raise answer
    return answer


@contextlib.contextmanager
def _folder_of(tokenizer: PreTrainedTokenizerBase | str | Path) -> Iterator[Path]:
    """Yield a folder with the tokenizer's files; of a tokenizer in memory, until the end of the context."""
    if isinstance(tokenizer, str | Path):
        yield Path(tokenizer)
        return
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        yield Path(folder)
