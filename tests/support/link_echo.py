"""A process that listens as a stage does and sends each body back: `python -m tests.support.link_echo HOST TOKEN_HEX`.

Its first line is the address.
"""

import sys

from aici_engine.cluster import frames
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import Attach, Attached
from aici_engine.cluster.link import LinkGroup
from aici_engine.cluster.link_server import PeerFrame, StageServer
from aici_engine.cluster.token import ClusterToken


def main(host: str, secret: str) -> None:
    with LinkGroup(ClusterToken(bytes.fromhex(secret)), role="stage", name="echo") as group:
        server = StageServer(group, StageAddress(host, 0), frames.decode_to_stage, max_body_bytes=64 << 20)
        print(server.address, flush=True)
        while True:
            event = server.receive()
            if isinstance(event, PeerFrame) and isinstance(event.message, Attach):
                server.send(event.peer, Attached(event.message.epoch, event.message.stage), event.body)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
