"""A controller for `generate` of transformers, as a logits processor.

`generate` appends one token a step to every row and takes none back, so a controller may allow tokens, force tokens and
stop. A controller that removes tokens, forks or waits ends with an error that names what it did.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import torch
from transformers import LogitsProcessor, PreTrainedTokenizerBase

from aici.constraints import Constraint
from aici.guest_rows import GuestRows
from aici.guest_runtime import GuestRuntime
from aici_base.ids import TokenId
from aici_engine.sample.torch_pipeline import TensorMasks


class ControllerProcessor(LogitsProcessor, AbstractContextManager["ControllerProcessor", None]):
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
        self._eos_tokens = [TokenId(token) for token in eos_tokens]
        with ExitStack() as stack:
            runtime = stack.enter_context(GuestRuntime(tokenizer, engine="generate", eos_tokens=self._eos_tokens))
            self._rows = GuestRows(runtime, constraint, pad_token=pad_token, seed=seed)
            self._runtime, self._stack = runtime.runtime, stack.pop_all()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return `scores` (rows, vocabulary) with -inf for tokens that the guests do not allow.

        `input_ids`: (rows, tokens).
        """
        bits = torch.from_numpy(self._rows.masks(input_ids.tolist())).to(scores.device)
        masks = TensorMasks(
            vocab_size=self._runtime.vocab_size,
            eos_token=self._runtime.eos_token,
            all_eos=self._eos_tokens,
            num_logits=scores.shape[1],
            device=scores.device,
        )
        return scores.masked_fill(~masks.is_open(bits), -torch.inf)

    def reset(self) -> None:
        """End the guests. The next call begins with new rows."""
        self._rows.reset()

    def close(self) -> None:
        """End the runtime. Idempotent."""
        self._stack.close()

    def __exit__(self, *_: object) -> None:
        self.close()
