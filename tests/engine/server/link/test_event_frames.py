"""Frames of an engine process, read on the event loop."""

import asyncio
from pathlib import Path

import zmq

from aici_engine.server.link.event_frames import EventFrames

_NUM = 100
"""More than are read without a turn of the event loop."""


def test_every_frame_arrives_in_order_also_if_many_came_at_once(tmp_path: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    received: list[bytes] = []
    sender = context.socket(zmq.PUSH)
    sender.connect(f"ipc://{tmp_path}/e")

    async def main() -> None:
        for number in range(_NUM):
            sender.send(b"before %d" % number)
        reader = EventFrames(context, received.append)
        reader.bind(f"ipc://{tmp_path}/e")
        await _until(received, _NUM)
        for number in range(_NUM):
            sender.send(b"after %d" % number)
            if number % 30 == 0:
                await asyncio.sleep(0.001)
        await _until(received, 2 * _NUM)
        reader.close()
        reader.close()

    asyncio.run(main())
    sender.close(0)
    context.term()
    assert received == [b"%s %d" % (when, number) for when in (b"before", b"after") for number in range(_NUM)]


def test_nothing_is_received_after_the_end(tmp_path: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    received: list[bytes] = []

    async def main() -> None:
        def take(frame: bytes) -> None:
            received.append(frame)
            reader.close()

        reader = EventFrames(context, take)
        reader.bind(f"ipc://{tmp_path}/e")
        with context.socket(zmq.PUSH) as sender:
            sender.connect(f"ipc://{tmp_path}/e")
            for _ in range(3):
                sender.send(b"frame")
            await _until(received, 1)
            await asyncio.sleep(0.01)

    asyncio.run(main())
    context.destroy(0)
    assert received == [b"frame"]


async def _until(received: list[bytes], number: int) -> None:
    async with asyncio.timeout(30):
        while len(received) < number:
            await asyncio.sleep(0.001)
