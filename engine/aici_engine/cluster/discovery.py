"""Clusters found by name on a local network (mDNS, service `_aici._tcp`). The only file that imports zeroconf.

An announcement holds the address and the public name of a cluster, never its token, and a proof: the HMAC of the
address under the token. A node that joined a stranger's address would give Ray's token away, which Ray sends as it is.
"""

import contextlib
import hmac
import importlib.util
import secrets
import threading
from collections.abc import Iterator
from typing import Any, Final

from aici_base.errors import NotFoundError, UnavailableError
from aici_engine.cluster.token import ClusterToken

_SERVICE: Final = "_aici._tcp.local."
_DISCOVER_S: Final = 10.0


def check_installed() -> None:
    """Raise UnavailableError if zeroconf is not installed."""
    if importlib.util.find_spec("zeroconf") is None:
        raise UnavailableError("zeroconf is not installed", hint="pip install 'aici[cluster]'")


@contextlib.contextmanager
def announced(address: str, token: ClusterToken) -> Iterator[None]:
    """Announce that the cluster's machines join at `address`, HOST:PORT."""
    check_installed()
    from zeroconf import ServiceInfo, Zeroconf

    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    info = ServiceInfo(
        _SERVICE,
        f"{token.cluster}-{secrets.token_hex(4)}.{_SERVICE}",  # a name that nobody could have taken
        parsed_addresses=[host],
        port=int(port),
        properties={"cluster": token.cluster, "proof": _proof(token, host, int(port))},
    )
    zeroconf = Zeroconf(interfaces=[host])
    try:
        zeroconf.register_service(info)
        yield
    finally:
        zeroconf.close()


def discover(token: ClusterToken, *, timeout_s: float = _DISCOVER_S) -> str:
    """Return HOST:PORT where the machines of the cluster join. Raises NotFoundError after `timeout_s`.

    An announcement without the proof of the token is ignored.
    """
    check_installed()
    from zeroconf import ServiceBrowser, ServiceStateChange, Zeroconf

    found: list[str] = []
    is_found = threading.Event()

    def changed(zeroconf: Any, service_type: str, name: str, state_change: Any) -> None:
        if state_change is ServiceStateChange.Removed:
            return
        info = zeroconf.get_service_info(service_type, name)
        if info is None or info.port is None:
            return
        for host in info.parsed_addresses():
            if not hmac.compare_digest(info.properties.get(b"proof") or b"", _proof(token, host, info.port).encode()):
                continue
            found.append(f"[{host}]:{info.port}" if ":" in host else f"{host}:{info.port}")
            is_found.set()

    zeroconf = Zeroconf()
    try:
        ServiceBrowser(zeroconf, _SERVICE, handlers=[changed])
        if not is_found.wait(timeout_s):
            raise NotFoundError(
                f"no server of cluster {token.cluster} announces itself on this network",
                hint="start the server with --announce, or give HOST:PORT",
            )
        return found[0]
    finally:
        zeroconf.close()


def _proof(token: ClusterToken, host: str, port: int) -> str:
    return token.mac(f"announcement of {host} {port}".encode()).hex()
