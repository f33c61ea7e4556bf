"""A TCP relay between two addresses that behaves badly on demand: late, slow, silent, cut, out of order.

    with Relay("198.18.1.2", 7201) as relay:
        connect(relay.host, relay.port)
        relay.set(delay_s=0.02)   # each way
        relay.stall()             # half-open: sockets stay, nothing arrives

The relay is a process, controlled over pipes; each command returns when the relay has obeyed. The relay runs in the
test's network, or in a machine: `Relay(..., start=machine.start, host=machine.address)`.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_PIECE = 1 << 14


class Relay:
    """The controlling end. `host`, `port`: where the relay listens."""

    def __init__(
        self,
        target_host: str,
        target_port: int,
        *,
        host: str = "127.0.0.1",
        start: Callable[..., Any] = subprocess.Popen,
    ) -> None:
        argv = [sys.executable, "-I", str(Path(__file__)), host, target_host, str(target_port)]
        # A machine's `start` opens text streams; Popen must be told.
        text: dict[str, Any] = {"text": True, "bufsize": 1} if start is subprocess.Popen else {}
        self.process = start(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **text)
        self.host, self.port = host, int(self._answer())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def set(self, *, delay_s: float = 0, bytes_per_s: float = 0) -> None:
        """Bytes arrive `delay_s` later, each way; each way of each connection carries `bytes_per_s` (0: no limit)."""
        self._command("set", delay_s=delay_s, bytes_per_s=bytes_per_s)

    def stall(self) -> None:
        """Half-open: no byte is forwarded, no connection is closed, and new connections are accepted in silence."""
        self._command("stall")

    def resume(self, *, lost: bool = False) -> None:
        """End a stall or a hold. What was held back arrives late; with `lost`, older connections are reset instead."""
        self._command("resume", lost=lost)

    def cut(self) -> None:
        """Reset every connection. New connections are made as before."""
        self._command("cut")

    def hold(self) -> None:
        """New connections wait (the older ones go on); `resume` lets the newest of them through first."""
        self._command("hold")

    def counts(self) -> dict[str, int]:
        """`connections` open now, `accepted` so far, `to_target` and `to_client` in bytes."""
        counts: dict[str, int] = json.loads(self._command("counts"))
        return counts

    def close(self) -> None:
        """End the relay's process; its connections are reset. Idempotent."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()

    def _command(self, name: str, **arguments: object) -> str:
        self.process.stdin.write(json.dumps([name, arguments]) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        line: str = self.process.stdout.readline()
        if not line:
            raise OSError("the relay has ended")
        return line.strip()


class _Relaying:
    """The relay's process: one asyncio loop, which blocks nowhere."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.delay_s = self.bytes_per_s = 0.0
        self.flowing, self.admitting = asyncio.Event(), asyncio.Event()
        self.flowing.set()
        self.admitting.set()
        self.waiting: list[asyncio.Event] = []  # held connections, the oldest first
        self.open: set[asyncio.StreamWriter] = set()
        self.counts = {"connections": 0, "accepted": 0, "to_target": 0, "to_client": 0}

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counts["accepted"] += 1
        self.counts["connections"] += 1
        writers = [writer]
        self.open.add(writer)
        try:
            if not self.admitting.is_set():
                admitted = asyncio.Event()
                self.waiting.append(admitted)
                await admitted.wait()
            await self.flowing.wait()
            theirs, their_writer = await asyncio.open_connection(*self.target)
            writers.append(their_writer)
            self.open.add(their_writer)
            await asyncio.gather(self._way(reader, their_writer, "to_target"), self._way(theirs, writer, "to_client"))
        except OSError:
            pass
        finally:
            self.counts["connections"] -= 1
            for each in writers:
                self.open.discard(each)
                each.transport.abort()

    async def _way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        """Read at once and write when due: pieces are on their way while newer ones arrive."""
        clock = asyncio.get_running_loop().time
        on_the_way: deque[tuple[float, bytes]] = deque()
        arrived, room = asyncio.Event(), asyncio.Event()

        async def deliver() -> None:
            while True:
                while not on_the_way:
                    arrived.clear()
                    await arrived.wait()
                due, piece = on_the_way[0]
                await asyncio.sleep(max(0.0, due - clock()))
                await self.flowing.wait()
                if not piece:
                    writer.write_eof()
                    return
                writer.write(piece)
                await writer.drain()
                self.counts[way] += len(piece)
                if self.bytes_per_s:
                    await asyncio.sleep(len(piece) / self.bytes_per_s)
                on_the_way.popleft()
                room.set()

        async def read() -> None:
            while True:
                await self.flowing.wait()
                piece = await reader.read(_PIECE)
                on_the_way.append((clock() + self.delay_s, piece))
                arrived.set()
                if not piece:
                    return
                while len(on_the_way) > 64:  # a slow link pushes back
                    room.clear()
                    await room.wait()

        await asyncio.gather(deliver(), read())

    def obey(self, name: str, arguments: dict[str, Any]) -> str:
        if name == "set":
            self.delay_s, self.bytes_per_s = arguments["delay_s"], arguments["bytes_per_s"]
        elif name == "stall":
            self.flowing.clear()
        elif name == "hold":
            self.admitting.clear()
        elif name == "resume":
            if arguments["lost"]:
                self._reset()
            self.flowing.set()
            self.admitting.set()
            for admitted in reversed(self.waiting):
                admitted.set()
            self.waiting.clear()
        elif name == "cut":
            self._reset()
        return json.dumps(self.counts)

    def _reset(self) -> None:
        for writer in self.open:
            writer.transport.abort()


async def _main(host: str, target_host: str, target_port: int) -> None:
    relaying = _Relaying((target_host, target_port))
    server = await asyncio.start_server(relaying.connection, host, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        print(relaying.obey(*json.loads(line)), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
