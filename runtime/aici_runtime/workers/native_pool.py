"""The guests of a pool as the loop in C sees them (`guests/native`)."""

from collections.abc import Mapping
from ctypes import POINTER, pointer

from aici_runtime.guests.native.host import NativeHost
from aici_runtime.guests.native.structures import CGuest, CPool
from aici_runtime.memory.worker_slots import WorkerSlot
from aici_runtime.workers.guest_server import GuestServer
from aici_runtime.workers.native_guest import NativeGuest


class NativePool:
    """Owns the struct of the pool. All servers have a `native`."""

    def __init__(self, host: NativeHost, slot: WorkerSlot) -> None:
        self._host = host
        self._struct = CPool(slot=slot.address)
        self._inside: list[GuestServer] = []

    def tell_news(self) -> None:
        """Let the loop return before its next round: there are other servers. Safe from any thread."""
        self._struct.has_news = 1

    def serve(self, servers: Mapping[int, GuestServer]) -> GuestServer | None:
        """Serve the guests in C. Return the server whose request is for Python; None when the pool itself has a
        request, a guest has come or a guest is to leave."""
        self._struct.has_news = 0  # first: a server that comes from here on may or may not be among `servers`
        self._let_in(list(servers.values()))
        index = self._host.serve_pool(self._struct)
        if index < 0:
            return None
        server = self._inside[index]
        _native(server).end()
        return server

    def answered(self, server: GuestServer) -> None:
        """Let the loop serve a guest again after an answer from Python."""
        _native(server).begin()

    def _let_in(self, servers: list[GuestServer]) -> None:
        if servers == self._inside:
            return
        for server in servers:
            if server not in self._inside:
                _native(server).begin()
        self._inside = servers
        guests = [pointer(_native(server).struct) for server in servers]
        self._struct.guests = (POINTER(CGuest) * len(guests))(*guests)
        self._struct.num_guests = len(guests)


def _native(server: GuestServer) -> NativeGuest:
    if server.native is None:
        raise AssertionError("a guest from another process")
    return server.native
