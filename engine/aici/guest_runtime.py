"""A runtime for an engine that only appends, over any tokenizer: what `aici.transformers` and `aici.vllm` share."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aici.append_only import AppendOnlyGuests
from aici.local import bring_module
from aici_base.ids import TokenId
from aici_controllers.catalog import pooled_module_ids
from aici_controllers.store import Store
from aici_runtime.client import Runtime, RuntimeConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class GuestRuntime(AbstractContextManager["GuestRuntime", None]):
    """Owns a ready runtime, its guests, and the names of controllers.

    `tokenizer`: of transformers, or a folder with its files. `engine`, `eos_tokens`: see `AppendOnlyGuests`.
    """

    def __init__(
        self, tokenizer: "PreTrainedTokenizerBase | str | Path", *, engine: str, eos_tokens: Iterable[int] = ()
    ) -> None:
        with ExitStack() as stack:
            folder = stack.enter_context(_folder_of(tokenizer))
            self.runtime = stack.enter_context(Runtime(RuntimeConfig(tokenizer=folder, pooled=pooled_module_ids())))
            self.runtime.wait_ready()
            self.guests = AppendOnlyGuests(self.runtime, engine=engine, eos_tokens=eos_tokens)
            self._store = Store()
            self._stack = stack.pop_all()

    @property
    def eos_token(self) -> TokenId:
        return self.runtime.eos_token

    def bring(self, controller: str | bytes) -> str:
        """Load a controller, given by name or as bytes, if need be. Return the id of the module."""
        return bring_module(self.runtime, self._store, controller)

    def close(self) -> None:
        """End the runtime. Idempotent."""
        self._stack.close()

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _folder_of(tokenizer: "PreTrainedTokenizerBase | str | Path") -> Iterator[Path]:
    """Yield a folder with the tokenizer's files; of a tokenizer in memory, until the end of the context."""
    if isinstance(tokenizer, str | Path):
        yield Path(tokenizer)
        return
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        yield Path(folder)
