"""The flags of a model that runs in stages."""

from typing import Final

from aici_base.errors import UsageError

TOKEN_HELP: Final = "File with the cluster's token (default: cluster-token in the folder of settings)."
STAGES_HELP: Final = (
    "Run the model in these stages, in the order of the layers; `aici stage` prints the address of each."
)
CUTS_HELP: Final = "The first layer after each stage; the server computes the rest (default: by memory and speed)."
DEPTH_HELP: Final = "Most steps in flight (default: the number of stages + 1)."


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
