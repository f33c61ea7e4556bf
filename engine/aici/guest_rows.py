"""A guest for each row of a batch whose rows grow by a token a step, as the rows of `generate` do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aici.append_only import Bits
from aici.constraints import Constraint
from aici.errors import UsageError
from aici.guest_runtime import GuestRuntime
from aici_base.errors import AiciError


@dataclass(slots=True)
class _Row:
    """The key of the row's guest, the number of tokens, and the last token, None before the first mask."""

    key: str
    num_tokens: int
    last: int | None = None


class GuestRows:
    """The guests of one batch at a time. `pad_token`: leading pads are no part of the prompt that a guest sees."""

    def __init__(
        self, runtime: GuestRuntime, constraint: Constraint[Any], *, pad_token: int | None = None, seed: int = 0
    ) -> None:
        self._runtime, self._guests = runtime, runtime.guests
        self._module_id = runtime.bring(constraint.controller)
        self._argument = constraint.argument
        self._pad_token = pad_token
        self._seed = seed
        self._rows: list[_Row] = []
        self._num_guests = 0

    def masks(self, tokens: Sequence[Sequence[int]]) -> Bits:
        """Return the masks (rows, bytes) for the next token. `tokens`: all tokens of each row.

        The first call begins the batch. Later calls have one more token in each row. Raises ControllerError for a guest
        that fails or asks for what the engine has not, and UsageError for rows that do not continue the last rows.
        """
        if not self._rows:
            self._begin(tokens)
        self._guests.send(self._taken(tokens))
        answers = self._guests.receive()
        return np.stack([_mask(answers[row.key]) for row in self._rows])

    def reset(self) -> None:
        """End the guests. The next `masks` begins a new batch."""
        for row in self._rows:
            self._guests.free(row.key)
        self._guests.flush()
        self._rows = []

    def _begin(self, tokens: Sequence[Sequence[int]]) -> None:
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

    def _taken(self, tokens: Sequence[Sequence[int]]) -> dict[str, list[int]]:
        """Return the tokens that were appended since the last step, by the keys of the rows."""
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


def _mask(answer: Bits | AiciError) -> Bits:
    if isinstance(answer, AiciError):
        raise answer
    return answer
