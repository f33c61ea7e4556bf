"""The flags of a model that runs in stages."""

from typing import TYPE_CHECKING, Final

from aici_base.errors import UsageError
from aici_cli.sizes import parse_bytes

if TYPE_CHECKING:
    from aici_engine.cluster.address import StageAddress

TOKEN_HELP: Final = "File with the cluster's token (default: cluster-token in the folder of settings)."
STAGES_HELP: Final = (
    "Run the model in these stages, in the order of the layers; `aici stage` prints the address of each."
)
CUTS_HELP: Final = (
    "The first layer after each stage, such as 10,20; the server computes the rest (default: by memory and speed)."
)
DEPTH_HELP: Final = "Most steps in flight (default: the number of stages + 1)."


def place(text: str, *, flag: str) -> "StageAddress":
    """Read HOST:PORT, or tcp://HOST:PORT. Raises UsageError.

    >>> place("10.0.0.2:7100", flag="--listen").port
    7100
    """
    from aici_engine.cluster.address import StageAddress

    try:
        return StageAddress.parse(text if "://" in text else f"tcp://{text}")
    except UsageError:
        hint = "write a host and a port, such as 10.0.0.1:4243"
        raise UsageError(f"{flag} {text!r} is not HOST:PORT", hint=hint) from None


def stage_memory(text: str | None) -> int | None:
    """Read `--memory SIZE`. Raises UsageError for memory that the process takes before it has a layer."""
    from aici_engine.cluster.node_info import process_bytes

    size = None if text is None else parse_bytes(text, flag="--memory")
    if size is not None and size <= process_bytes():
        raise UsageError(
            f"--memory {text} leaves nothing for layers: the process itself takes about {process_bytes() >> 20} MiB",
            hint="give more memory",
        )
    return size


def stage_addresses(text: str | None) -> tuple[str, ...]:
    """Read `ADDRESS,...`. Raises UsageError for anything but addresses."""
    from aici_engine.cluster.address import StageAddress

    addresses = () if text is None else tuple(part.strip() for part in text.split(","))
    for address in addresses:
        StageAddress.parse(address)
    return addresses


def layer_cuts(text: str | None) -> tuple[int, ...]:
    """Read `LAYER,...`. Raises UsageError for anything but numbers."""
    try:
        return () if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--cuts {text!r} is not a list of layers", hint="write numbers, such as 10,20") from None
