"""Measure a link between two machines, without any model.

`python -m aici_cli.bench.cluster_links echo HOST TOKEN_FILE` listens, and prints its address.
`python -m aici_cli.bench.cluster_links ping ADDRESS TOKEN_FILE SIZE...` prints a JSON list with an entry per size.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import Buffer, decoder
from aici_engine.cluster.link import LinkGroup, StageLink
from aici_engine.cluster.link_server import PeerFrame, StageServer
from aici_engine.cluster.token import ClusterToken

_MAX_BYTES: Final = 64 << 20
_LATENCY_S: Final = 0.5
_LEAST_TRIPS: Final = 20
_STREAM_BYTES: Final = 64 << 20


class EchoRequest(msgspec.Struct, frozen=True, array_like=True, tag="echo"):
    """`wants_reply`: the peer sends the body back; else the peer only reads it."""

    wants_reply: bool


_decode: Final[Callable[[Buffer], EchoRequest]] = decoder(EchoRequest)


def echo(host: str, token: ClusterToken) -> None:
    """Listen until the process is ended."""
    with LinkGroup(token, role="stage", name="echo") as group:
        server = StageServer(group, StageAddress(host, 0), _decode, max_body_bytes=_MAX_BYTES)
        print(server.address, flush=True)
        while True:
            event = server.receive()
            if isinstance(event, PeerFrame) and event.message.wants_reply:
                server.send(event.peer, event.message, event.body)


def ping(address: StageAddress, token: ClusterToken, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return round trips, and the rate of a stream in one direction, for bodies of every size in bytes."""
    with LinkGroup(token, role="driver", name="ping") as group:
        link = StageLink(group, address, _decode, max_body_bytes=_MAX_BYTES)
        link.wait_ready()
        return [_measure(link, size) for size in sizes]


def _measure(link: "StageLink[EchoRequest]", size: int) -> dict[str, Any]:
    body = bytes(size)
    trips: list[float] = []
    end = time.perf_counter() + _LATENCY_S
    while time.perf_counter() < end or len(trips) < _LEAST_TRIPS:
        trips.append(_seconds(link, body, 1))
    num_frames = max(1, min(_STREAM_BYTES // max(size, 1), 4096))
    stream_s = min(_seconds(link, body, num_frames) for _ in range(3))
    return {
        "bytes": size,
        "round_trip_p50_us": statistics.median(trips) * 1e6,
        "round_trip_p99_us": sorted(trips)[len(trips) * 99 // 100] * 1e6,
        "megabytes_per_s": num_frames * size / stream_s / 1e6,
    }


def _seconds(link: "StageLink[EchoRequest]", body: bytes, num_frames: int) -> float:
    """Return the time of `num_frames` frames and the reply to the last."""
    began = time.perf_counter()
    for left in reversed(range(num_frames)):
        link.send(EchoRequest(wants_reply=not left), body)
    link.receive()
    return time.perf_counter() - began


def main(role: str, where: str, token_file: str, *sizes: str) -> None:
    token = ClusterToken.read(Path(token_file))
    if role == "echo":
        echo(where, token)
    else:
        print(json.dumps(ping(StageAddress.parse(where), token, [int(size) for size in sizes])))


if __name__ == "__main__":
    main(*sys.argv[1:])
