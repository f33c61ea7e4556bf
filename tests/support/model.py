"""The default model, for tests with the real model."""

from functools import cache
from pathlib import Path

from aici_engine.store.resolve import resolve_model


@cache
def default_model_dir() -> Path:
    """The converted default model; fetched and converted into the cache on the first call on a machine."""
    return resolve_model(None)
