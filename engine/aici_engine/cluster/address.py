"""Addresses of stages and node daemons: tcp://HOST:PORT#KEY."""

import ipaddress
import re
import socket
from typing import NamedTuple, Self

from zmq.utils import z85

from aici_base.errors import UnreachableError, UsageError

_ADDRESS = re.compile(
    r"tcp://(?P<host>\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\[\]:/#\s]+):(?P<port>[0-9]{1,5})(?:#(?P<key>.*))?"
)
_WILDCARDS = ("*", "0.0.0.0", "::")


class StageAddress(NamedTuple):
    """Where a stage or a node daemon listens. `key`: its public CURVE key, 32 bytes; `None` without encryption.

    The text has the key in hexadecimal digits, so a list of addresses can be separated by commas. A shell takes the
    text as it is; where "#" begins a comment in the middle of a word, quote the text.

    >>> address = StageAddress.parse("tcp://10.0.0.2:7100#" + "ab" * 32)
    >>> address.host, address.port, address.key == bytes([0xAB]) * 32
    ('10.0.0.2', 7100, True)
    >>> str(StageAddress("::1", 7100))
    'tcp://[::1]:7100'
    """

    host: str
    port: int
    key: bytes | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises UsageError for anything but an address."""
        found = _ADDRESS.fullmatch(text)
        if found is None or int(found["port"]) > 65535:
            raise UsageError(
                f"{text!r} is not an address of another machine's process",
                hint="an address is tcp://HOST:PORT#KEY, as aici stage, aici engine and aici node join print it; quote "
                "it if your shell drops the #",
            )
        key = found["key"]
        if key is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", key):
            raise UsageError(
                f"the key of the address {text!r} has not 64 hexadecimal digits",
                hint="copy the whole address that the other process prints",
            )
        return cls(found["host"].strip("[]"), int(found["port"]), None if key is None else bytes.fromhex(key))

    @property
    def endpoint(self) -> str:
        """The address without the key: what messages for people name."""
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"

    @property
    def curve_key(self) -> bytes | None:
        """The key as ZeroMQ takes it, in Z85."""
        return None if self.key is None else z85.encode(self.key)

    @property
    def is_wildcard(self) -> bool:
        return self.host in _WILDCARDS

    def resolved(self) -> Self:
        """Return the address with the number of the host in place of its name; IPv4 if the host has both.

        Raises UnreachableError for an unknown name.
        """
        if self.is_wildcard:
            return self._replace(host="0.0.0.0" if self.host == "*" else self.host)
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise UnreachableError(f"the host {self.host!r} is not known: {error.strerror}") from error
        found.sort(key=lambda entry: entry[0] != socket.AF_INET)
        return self._replace(host=str(found[0][4][0]))

    @property
    def is_private(self) -> bool:
        """Return whether a numeric host is this machine, or in a private network."""
        address = ipaddress.ip_address(self.host)
        return address.is_private and not address.is_unspecified

    def __str__(self) -> str:
        return self.endpoint if self.key is None else f"{self.endpoint}#{self.key.hex()}"
