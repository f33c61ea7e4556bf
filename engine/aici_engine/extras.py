"""Optional packages, and the extras of aici that install them."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Final

from aici_base.errors import UnavailableError

KERNELS: Final = ("numpy", "jinja2")
"""What the kernels' path needs."""
ENGINE: Final = ("torch", "transformers", "gguf", "safetensors")
"""What conversion, GPUs and models of other families need."""
EXTRAS: Final[Mapping[str, str]] = {**dict.fromkeys(KERNELS, "kernels"), **dict.fromkeys(ENGINE, "engine")}
"""The extra of each package."""


def missing(packages: Sequence[str]) -> list[str]:
    """Return the packages that are not installed. Nothing is imported."""
    return [name for name in packages if find_spec(name) is None]


@contextlib.contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Turn a missing package of EXTRAS into an error that names the purpose and the extra.

    >>> with needed_for("a sum"):
    ...     import numpy
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name not in EXTRAS:
            raise
        hint = f"pip install 'aici[{EXTRAS[error.name]}]'"
        raise UnavailableError(f"{error.name} is not installed: it is needed for {what}", hint=hint) from error
