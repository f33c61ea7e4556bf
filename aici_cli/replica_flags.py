"""`--replicas` of `aici serve`: how many engine processes each model has."""

from typing import TYPE_CHECKING, Final

from aici_base.errors import UsageError

if TYPE_CHECKING:
    from aici_engine.server.config import ReplicaCount

REPLICAS_HELP: Final = (
    "Engine processes of each model, which share the cores; A:B: from A to B of them, by the time that requests wait."
)


def replica_count(text: str, *, down_after_s: float) -> "ReplicaCount":
    """Read N, or A:B. Raises UsageError.

    >>> replica_count("1:4", down_after_s=15.0).most
    4
    """
    from aici_engine.server.config import ReplicaCount

    least, colon, most = text.partition(":")
    try:
        return ReplicaCount(least=int(least), most=int(most if colon else least), down_after_s=down_after_s)
    except ValueError:
        raise UsageError(f"--replicas {text!r} is not a number", hint="write --replicas 2, or --replicas 1:4") from None
