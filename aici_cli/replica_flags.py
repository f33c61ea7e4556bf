"""`--replicas` of `aici serve`: how many engine processes each model has."""

from typing import TYPE_CHECKING, Final

from aici_base.errors import UsageError
from aici_cli.stage_flags import stage_addresses

if TYPE_CHECKING:
    from pathlib import Path

    from aici_engine.server.config import ReplicaCount, ReplicaPlaces

PIN_HELP: Final = "Keep the processes of each replica on cores of their own."
REPLICAS_HELP: Final = (
    "Engine processes of each model, which share the cores; A:B: from A to B of them, by the time that requests wait. "
    "With --cluster or --nodes: whole engines on the machines that join, one a machine."
)
ENGINES_HELP: Final = "Replicas on other machines: an engine at each address; `aici engine` prints the address."


def replica_places(
    *,
    replicas: str,
    engines: str | None,
    nodes: str | None,
    join_address: str | None,
    token_file: "Path | None",
    patience_s: float,
) -> "ReplicaPlaces | None":
    """Return the machines of the replicas; None for this machine. Raises UsageError for anything but addresses."""
    from aici_engine.server.config import ReplicaPlaces

    if engines is not None:
        if nodes is not None or join_address is not None:
            raise UsageError("the machines of the engines are given twice", hint="leave --engines out, or the others")
        return ReplicaPlaces(engines=stage_addresses(engines), token_file=token_file, patience_s=patience_s)
    if (nodes is None and join_address is None) or replicas == "1":
        return None
    return ReplicaPlaces(
        nodes=stage_addresses(nodes), ray_address=join_address, token_file=token_file, patience_s=patience_s
    )


def replica_count(
    text: str, *, down_after_s: float, pins: bool = True, places: "ReplicaPlaces | None" = None
) -> "ReplicaCount":
    """Read N, or A:B. With the addresses of engines, the default is an engine at each. Raises UsageError.

    >>> replica_count("1:4", down_after_s=15.0).most
    4
    """
    from aici_engine.server.config import ReplicaCount

    if text == "1" and places is not None and places.engines:
        text = str(len(places.engines))
    least, colon, most = text.partition(":")
    try:
        numbers = int(least), int(most if colon else least)
    except ValueError:
        raise UsageError(f"--replicas {text!r} is not a number", hint="write --replicas 2, or --replicas 1:4") from None
    return ReplicaCount(least=numbers[0], most=numbers[1], down_after_s=down_after_s, pins=pins, places=places)
