"""The interface of a mask engine in `aici bench masks`.

A peer is a Python file that imports the engine only inside functions, and defines NAME; PACKAGE, the module to import;
INSTALL, the command that installs the engine; and Engine, a class: Engine(vocabulary) as below. tests/peers/masks has
the peers of a checkout.
"""

from typing import Protocol, runtime_checkable

from aici_controllers.mask_bench.cases import MaskCase


class CannotError(Exception):
    """The engine supports no notation of the case, or rejects the notation. The text is the reason."""


class MaskSession(Protocol):
    """One constraint from start to end, driven as an inference engine would."""

    def mask(self) -> None:
        """Compute the mask of the next token. Timed."""

    def consume(self, token: int) -> None:
        """Advance by a token of the last mask. Timed."""

    def bits(self) -> bytes:
        """Return the last mask; bit k (least significant first) is set if token k is allowed."""

    def memory_bytes(self) -> int | None:
        """Return the memory of the constraint, or None if unknown; then the growth of the process counts."""


class MaskEngine(Protocol):
    name: str

    def start(self, case: MaskCase) -> MaskSession:
        """Parse, compile and instantiate: all work before the first mask. Timed. Raises CannotError."""


@runtime_checkable
class KeepsBetweenRequests(Protocol):
    """An engine whose first request for a kind of constraint leaves something behind for later requests."""

    def start_first(self, case: MaskCase) -> MaskSession:
        """Start as the first request, without anything left behind. Timed."""


def allows(session: MaskSession, token: int) -> bool:
    return bool(session.bits()[token >> 3] >> (token & 7) & 1)
