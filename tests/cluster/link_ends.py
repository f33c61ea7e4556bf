"""Both ends of links in one process: real sockets, real encryption."""

from contextlib import ExitStack

from aici_engine.cluster import frames
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import Attach, FromStage, ToStage
from aici_engine.cluster.link import LinkGroup, StageLink
from aici_engine.cluster.link_server import KeyPair, Peer, PeerJoined, StageServer
from aici_engine.cluster.token import ClusterToken

ANY_PORT = StageAddress("127.0.0.1", 0)
ATTACH = Attach(7, 0, 1, "", 10, 16, 512, 100, True)


class Ends:
    """A server and the links to it, closed at the end of a test."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.token = ClusterToken.new()

    def group(self, *, role: str = "driver", insecure: bool = False, token: ClusterToken | None = None) -> LinkGroup:
        return self.stack.enter_context(
            LinkGroup(token or self.token, role=role, name="the " + role, insecure=insecure)
        )

    def server(
        self, listen: StageAddress = ANY_PORT, *, insecure: bool = False, keys: KeyPair | None = None
    ) -> StageServer[ToStage]:
        group = self.group(role="stage", insecure=insecure)
        return StageServer(group, listen, frames.decode_to_stage, max_body_bytes=64 << 20, keys=keys)

    def link(self, address: StageAddress, *, group: LinkGroup | None = None, **options: object) -> StageLink[FromStage]:
        return StageLink(group or self.group(), address, frames.decode_from_stage, max_body_bytes=64 << 20, **options)

    def joined(self, **options: bool) -> tuple[StageServer[ToStage], Peer, StageLink[FromStage]]:
        server = self.server(**options)
        link = self.link(server.address, group=self.group(**options))
        return server, meet(server, link), link


def meet(server: StageServer[ToStage], link: StageLink[FromStage]) -> Peer:
    event = server.receive(5)
    assert isinstance(event, PeerJoined)
    link.wait_ready()
    return event.peer
