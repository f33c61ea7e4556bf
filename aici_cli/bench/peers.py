"""Peers: other engines that `aici bench engine` and `aici bench masks` compare with.

A peer is one Python file. A checkout has peers in tests/peers; an installed package has none, and `--peer FILE.py`
names a file anywhere. `engines/protocol.py` describes a peer of `bench engine`. `aici_controllers/mask_bench/engine.py`
describes a peer of `bench masks`.
"""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from aici_base.errors import NotFoundError
from aici_cli.bench.engines.protocol import load_peer
from aici_cli.output import say

PEERS: Final = Path(__file__).resolve().parents[2] / "tests/peers"

Kind = Literal["engines", "masks"]


def known_peers(kind: Kind, root: Path = PEERS) -> Mapping[str, Any]:
    """Return the peers of the checkout by name; empty in an installed package."""
    modules = [load_peer(str(path)) for path in sorted((root / kind).glob("*.py"))]
    return {module.NAME: module for module in modules}


def default_peers(kind: Kind) -> Mapping[str, Any]:
    """Return all known peers, with a message to the user if the installation has none."""
    peers = known_peers(kind)
    if not peers:
        say(f"no peers to compare with: a checkout has some in tests/peers/{kind}; name one with --peer FILE.py")
    return peers


def find_peer(kind: Kind, name: str, root: Path = PEERS) -> ModuleType:
    """Return the peer `name`, a name of `known_peers` or the path of a .py file. Raises NotFoundError."""
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise NotFoundError(f"no peer file at {name}", hint="give the path of a peer file, or a name")
        return load_peer(name)  # type: ignore[no-any-return]
    known = known_peers(kind, root)
    if name in known:
        return known[name]  # type: ignore[no-any-return]
    if known:
        raise NotFoundError(f"no engine is called {name!r}", hint=f"engines: {', '.join(known)}, none, or FILE.py")
    raise NotFoundError(
        f"no engine is called {name!r}: this installation has no peers",
        hint=f"take a peer file from tests/peers/{kind} of a checkout: --peer FILE.py",
    )
