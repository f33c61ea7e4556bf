"""A process at one end of a link: link_peer.py ROLE TOKEN_FILE ADDRESS, ROLE one of stage, insecure-stage, driver.

A stage prints its address, "joined" and "lost", and answers each frame with its body. A driver prints "ready", then
why the link is lost. Both end when stdin ends.
"""

import sys
import threading
from pathlib import Path

from aici_engine.cluster import frames
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import StepStates
from aici_engine.cluster.link import LinkGroup, LinkLostError, StageLink
from aici_engine.cluster.link_server import PeerFrame, StageServer
from aici_engine.cluster.token import ClusterToken

MAX_BODY = 64 << 20


def main(role: str, token_file: str, address: str) -> None:
    token, insecure = ClusterToken.read(Path(token_file)), role == "insecure-stage"
    with LinkGroup(token, role="driver" if role == "driver" else "stage", name="a", insecure=insecure) as group:
        stopping = threading.Event()

        def stop() -> None:
            sys.stdin.read()
            stopping.set()
            group.wake()

        threading.Thread(target=stop, daemon=True).start()
        if role != "driver":
            serve(group, StageAddress.parse(address), stopping)
        else:
            drive(group, StageAddress.parse(address), stopping)


def serve(group: LinkGroup, listen: StageAddress, stopping: threading.Event) -> None:
    server = StageServer(group, listen, frames.decode_to_stage, max_body_bytes=MAX_BODY)
    print(server.address, flush=True)
    while not stopping.is_set():
        while (event := server.receive(0)) is not None:
            if isinstance(event, PeerFrame):
                server.send(event.peer, StepStates(1, 1, []), event.body)
            else:
                print(type(event).__name__.removeprefix("Peer").lower(), flush=True)
        group.wait()


def drive(group: LinkGroup, address: StageAddress, stopping: threading.Event) -> None:
    link = StageLink(group, address, frames.decode_from_stage, max_body_bytes=MAX_BODY)
    link.wait_ready()
    print("ready", flush=True)
    try:
        while not stopping.is_set():
            group.wait()
            link.receive(0)
    except LinkLostError as error:
        print(error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
