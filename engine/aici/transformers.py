"""A controller for `generate` of transformers, as a logits processor.

`generate` appends one token a step to every row and takes none back, so a controller may allow tokens, force tokens and
stop. A controller that removes tokens, forks or waits ends with an error that names what it did.
"""

import contextlib
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from transformers import LogitsProcessor, PreTrainedTokenizerBase

from aici.constraints import Constraint
from aici.errors import ControllerError, UsageError
from aici.local import bring_module
from aici_base.ids import SeqId, TokenId
from aici_controllers.store import Store
from aici_engine.control.guest_errors import guest_error
from aici_engine.sample.torch_pipeline import TensorMasks
from aici_runtime.client import Runtime, RuntimeConfig
from aici_runtime.wire import MidOp, PostOp, Pre, PreOp, SeqResult, Splice, Turn


@dataclass(slots=True)
class _Row:
    """A row of `input_ids` and its guest.

    `num_tokens`: of the row; `last` is the last one. `forced`: tokens still to be forced. `told`: tokens that the guest
    is to be told of. `asks_pre`: pre comes before the next mask. `stopped`: the row ends after its forced tokens.
    """

    seq_id: SeqId
    num_tokens: int = 0
    last: TokenId | None = None
    forced: deque[TokenId] = field(default_factory=deque)
    told: PostOp | None = None
    asks_pre: bool = True
    stopped: bool = False


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
            self._stack = stack.pop_all()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return `scores` (rows, vocabulary) with -inf for tokens that the guests do not allow.

        `input_ids`: (rows, tokens).
        """
        tokens = input_ids.tolist()
        if not self._rows:
            self._begin(tokens)
        self._take(tokens)
        masks = self._masks_of([row for row in self._rows if not (row.stopped or row.forced)])
        return self._applied(masks, scores)

    def reset(self) -> None:
        """End the guests. The next call begins with new rows."""
        if self._rows:
            self._turn(freed=[row.seq_id for row in self._rows])
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
            kept = next((place for place, token in enumerate(row) if token != self._pad_token), len(row))
            prompt = [TokenId(token) for token in row[kept:]]
            started.append(
                self._runtime.instantiate(
                    req_id=str(self._num_guests),
                    prompt=prompt,
                    module_id=self._module_id,
                    module_arg=self._argument,
                    seed=self._seed,
                )
            )
            self._rows.append(_Row(SeqId(self._num_guests), num_tokens=len(row) - 1))
        for guest in started:
            guest.result()
        self._hear_pre(self._turn(bound=self._rows), self._rows)

    def _take(self, tokens: list[list[int]]) -> None:
        """Take the tokens that `generate` has appended since the last step."""
        continued = len(tokens) == len(self._rows) and all(
            len(ids) == row.num_tokens + 1 and (row.last is None or ids[-2] == row.last)
            for ids, row in zip(tokens, self._rows, strict=False)
        )
        if not continued:
            raise UsageError(
                "the rows are not those of the last step, each with one more token",
                hint="call reset() between two calls of generate; beam search and assisted generation are not served",
            )
        for ids, row in zip(tokens, self._rows, strict=True):
            token = TokenId(ids[-1])
            is_first, row.num_tokens, row.last = row.last is None, len(ids), token
            if is_first:
                continue
            if row.forced:
                if token != row.forced.popleft():
                    raise ControllerError(f"generate appended token {token} where the controller forced another")
            elif self._is_eos(token):
                row.stopped = True
            elif not row.stopped:
                row.told, row.asks_pre = PostOp(row.seq_id, [token]), True

    def _masks_of(self, rows: list[_Row]) -> dict[SeqId, "np.ndarray[Any, np.dtype[np.uint8]]"]:
        """Ask the guests of `rows`, which afterwards have stopped, have forced tokens, or have a mask in the result."""
        asked = [row for row in rows if row.asks_pre]
        if asked:
            self._hear_pre(self._turn(asked=asked), asked)
        rows = [row for row in rows if not (row.stopped or row.forced)]
        if not rows:
            return {}
        turn = self._turn(masked=rows)
        bits = np.frombuffer(self._runtime.mask_rows(len(rows)), np.uint8).reshape(len(rows), -1)
        masks = {}
        for row, mask in zip(rows, bits, strict=True):
            splice = _result(turn.mid.get(row.seq_id))
            row.asks_pre = True
            if splice is None:
                masks[row.seq_id] = mask.copy()
            else:
                self._splice(row, splice)
        return masks

    def _hear_pre(self, turn: Turn, rows: list[_Row]) -> None:
        for row in rows:
            post = _result(turn.post.get(row.seq_id)) if row.told is not None else None
            pre = _result(turn.pre.get(row.seq_id))
            row.told, row.asks_pre = None, False
            if post is not None and post.stop:
                row.stopped = True
            elif pre is not None:
                _check_pre(pre)
                row.stopped = pre.num_forks == 0
                row.forced.extend(pre.ff_tokens)  # the runtime tells the guest of these

    def _splice(self, row: _Row, splice: Splice) -> None:
        # The guest counts the token of this step too, which was never appended.
        if splice.backtrack > 1:
            raise _not_served(f"removes {splice.backtrack - 1} tokens")
        row.forced.extend(splice.ff_tokens)
        row.told = PostOp(row.seq_id, list(splice.ff_tokens), splice.backtrack)
        if not splice.ff_tokens:
            raise _not_served("changes nothing in a step")

    def _turn(
        self,
        *,
        bound: Iterable[_Row] = (),
        asked: Iterable[_Row] = (),
        masked: Iterable[_Row] = (),
        freed: Iterable[SeqId] = (),
    ) -> Turn:
        asked = list(asked)
        self._runtime.send_turn(
            post_ops=[row.told for row in asked if row.told is not None],
            pre_ops=[PreOp(row.seq_id, str(row.seq_id)) for row in bound],
            asked=[row.seq_id for row in asked],
            ops=[MidOp(row.seq_id) for row in masked],
            freed=list(freed),
        )
        return self._runtime.recv_turn()

    def _applied(self, masks: dict[SeqId, "np.ndarray[Any, np.dtype[np.uint8]]"], scores: torch.Tensor) -> torch.Tensor:
        if self._masks is None:
            self._masks = TensorMasks(
                vocab_size=self._runtime.vocab_size,
                eos_token=self._runtime.eos_token,
                all_eos=[self._runtime.eos_token, *self._eos_tokens],
                num_logits=scores.shape[1],
                device=scores.device,
            )
        is_open = torch.zeros_like(scores, dtype=torch.bool)
        for place, row in enumerate(self._rows):
            if row.seq_id in masks:
                bits = torch.from_numpy(masks[row.seq_id])[None].to(scores.device)
                is_open[place] = self._masks.is_open(bits)[0]
                if not is_open[place].any():
                    raise ControllerError("the controller's mask allows no token")
            else:
                is_open[place, row.forced[0] if row.forced else self._runtime.eos_token] = True
        return scores.masked_fill(~is_open, -torch.inf)

    def _is_eos(self, token: TokenId) -> bool:
        return token == self._runtime.eos_token or token in self._eos_tokens


def _check_pre(pre: Pre) -> None:
    if pre.suspend:
        raise _not_served("waits for another fork")
    if pre.num_forks > 1:
        raise _not_served(f"forks into {pre.num_forks}")


def _not_served(what: str) -> ControllerError:
    return ControllerError(f"the controller {what}: generate cannot", hint="run it on an engine of aici: aici.LLM")


def _result(answer: SeqResult[Any] | None) -> Any:
    if answer is not None and answer.error:
        raise guest_error(answer.error)
    return None if answer is None else answer.result


@contextlib.contextmanager
def _folder_of(tokenizer: PreTrainedTokenizerBase | str | Path) -> Iterator[Path]:
    """Yield a folder with the tokenizer's files; of a tokenizer in memory, until the end of the context."""
    if isinstance(tokenizer, str | Path):
        yield Path(tokenizer)
        return
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        yield Path(folder)
