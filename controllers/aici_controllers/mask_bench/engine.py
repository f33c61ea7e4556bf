"""The interface of a mask engine in `aici bench masks`.

A peer is a Python file that imports the engine only inside functions, and defines NAME; PACKAGE, the module to import;
INSTALL, the command that installs the engine; and Engine, a class: Engine(vocabulary) as below. tests/peers/masks has
the peers of a checkout.
"""

from typing import Protocol

from aici_controllers.mask_bench.cases import Case


class CannotError(Exception):
    """The engine has no notation for the case, or refuses the one it was given. The text says which."""


class Session(Protocol):
    """One constraint from its start to its end, as an inference engine would drive it."""

    def mask(self) -> None:
        """Compute which tokens may follow. Timed."""

    def consume(self, token: int) -> None:
        """The next token, which the last mask allowed. Timed."""

    def bits(self) -> bytes:
        """The last mask, bit k (least significant first) = token k allowed."""

    def memory_bytes(self) -> int | None:
        """What the constraint holds, when the engine knows; None: look at the process."""


class Engine(Protocol):
    name: str

    def start(self, case: Case) -> Session:
        """All work before the first mask: parse, compile, instantiate. Timed. Raises CannotError."""


def allows(session: Session, token: int) -> bool:
    return bool(session.bits()[token >> 3] >> (token & 7) & 1)
