import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import posix_ipc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aici_base.errors import UsageError
from aici_runtime.channels.channel import Channels, Mailbox, MessageTooLargeError, Sync
from aici_runtime.channels.semaphore_mailbox import SemaphoreNames
from aici_runtime.memory import shm

SIZE = 16384
MAX = {"semaphore": SIZE - 4, "futex": SIZE // 2 - 16}
EACH = ("semaphore", "futex")


@pytest.fixture(params=EACH)
def sync(request: pytest.FixtureRequest) -> Sync:
    return "futex" if request.param == "futex" else "semaphore"


@pytest.fixture
def channels(sync: Sync) -> Iterator[Channels]:
    channels = Channels(shm.unique_prefix(), sync, SIZE)
    yield channels
    channels.unlink()


@pytest.fixture
def pair(channels: Channels) -> Iterator[tuple[Mailbox, Mailbox]]:
    ends = channels.create("cmd", "-side"), channels.attach("cmd", "-side")
    yield ends
    for end in ends:
        end.close()


def memory_of(channels: Channels, name: str) -> shm.Region:
    return shm.attach_region(channels.prefix + name, SIZE, create=False)


def test_names_are_those_of_the_protocol() -> None:
    names = SemaphoreNames.of("/aici0-", "cmd", "-side")
    assert names == SemaphoreNames("/aici0-cmd-side-shm", "/aici0-cmd-side-wr", "/aici0-cmd-side-rd")
    assert SemaphoreNames.of("/aici0-", "resp", "").region == "/aici0-resp-shm"


@pytest.mark.parametrize("sync", ["semaphore"], indirect=True)
def test_golden_frame(channels: Channels, pair: tuple[Mailbox, Mailbox]) -> None:
    pair[0].send(b'{"op":"ping"}')
    memory = memory_of(channels, "cmd-side-shm")
    assert memory[:17].hex() == "0d0000007b226f70223a2270696e67227d"
    assert pair[1].receive() == b'{"op":"ping"}'
    assert memory[:4] == bytes(4)  # the receiver resets the length
    memory.close()


def test_a_reader_that_is_killed_leaves_the_message(pair: tuple[Mailbox, Mailbox]) -> None:
    sender, receiver = pair
    sender.send(b"first")
    child = os.fork()
    if child == 0:
        receiver.receive(accept=lambda _: os.kill(os.getpid(), signal.SIGKILL))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    receiver.repair("reading", patience_s=0.05)
    assert receiver.receive() == b"first"
    sender.send(b"second")
    receiver.repair("reading", patience_s=0.05)  # the writer's part is in order
    assert receiver.receive() == b"second"


@pytest.mark.parametrize("sync", ["semaphore"], indirect=True)
@pytest.mark.parametrize("end", ["reading", "writing"])
def test_what_was_killed_between_two_semaphores(channels: Channels, pair: tuple[Mailbox, Mailbox], end: str) -> None:
    """A killed reader had emptied the mailbox, or a killed writer had not filled the mailbox."""
    assert end in ("reading", "writing")
    writable = shm.attach_semaphore(f"{channels.prefix}cmd-side-wr", 1)
    writable.acquire()
    pair[0].repair(end, patience_s=0.05)
    pair[0].send(b"next")
    assert pair[1].receive() == b"next"
    assert writable.value == 1
    writable.close()


@pytest.mark.parametrize("sync", ["futex"], indirect=True)
@pytest.mark.parametrize(("direction", "start"), [("cmd", 0), ("resp", SIZE // 2)])
def test_golden_halves(channels: Channels, direction: str, start: int) -> None:
    assert direction in ("cmd", "resp")
    engine = channels.create(direction, "")
    memory = memory_of(channels, direction)
    runtime = channels.attach(direction, "")
    assert not os.path.exists(f"/dev/shm{channels.prefix}{direction}")  # the runtime unlinks it
    engine.send(b'{"op":"ping"}')
    assert memory[start : start + 17].hex() == "0d0000007b226f70223a2270696e67227d"
    assert runtime.receive() == b'{"op":"ping"}'
    assert memory[start : start + 4] == bytes(4)
    for end in (engine, runtime, memory):
        end.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(messages=st.lists(st.binary(min_size=1, max_size=MAX["futex"]), max_size=8))
def test_every_message_arrives_once_and_in_order(pair: tuple[Mailbox, Mailbox], messages: list[bytes]) -> None:
    sender, receiver = pair
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.extend(receiver.receive() for _ in messages))
    reader.start()
    for message in messages:
        sender.send(message)
    reader.join()
    assert received == messages


def test_two_processes_under_signals(channels: Channels) -> None:
    """Both mailboxes at once, both ends interrupted and paused at random: no message lost or doubled."""
    requests, responses = channels.create("cmd", ""), channels.create("resp", "")
    arguments = [channels.prefix, channels.sync, str(SIZE), "7"]
    peer = subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.support.echo", *arguments], stdout=subprocess.PIPE, text=True
    )
    assert peer.stdout is not None
    assert peer.stdout.readline() == "ready\n"
    choose = random.Random(8)
    messages = [choose.randbytes(choose.choice((1, 2, 100, MAX["futex"]))) for _ in range(1500)]
    pauses = [choose.choice((0, 0, 0, 0.0001, 0.001)) for _ in messages]

    def send() -> None:
        for message, pause in zip(messages, pauses, strict=True):
            time.sleep(pause)
            requests.send(message)
        requests.send(b"end")

    previous = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.0011, 0.0011)
    try:
        sender = threading.Thread(target=send)
        sender.start()
        received = [responses.receive()[::-1] for _ in messages]
        sender.join()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        peer.stdout.close()
        if peer.wait(20) != 0:
            peer.kill()
    assert received == messages
    assert peer.returncode == 0
    for end in (requests, responses):
        end.close()


def test_the_limit_is_exact_and_nothing_is_sent_beyond(sync: Sync, pair: tuple[Mailbox, Mailbox]) -> None:
    size = MAX[sync]
    text = rf"msg too large; {size + 1} \+ 4 > {SIZE}" if sync == "semaphore" else f"msg too large; {size + 1} > {size}"
    with pytest.raises(MessageTooLargeError, match=text):
        pair[0].send(b"x" * (size + 1))
    pair[0].send(b"y" * size)
    assert pair[1].receive() == b"y" * size


def test_a_second_message_waits_until_the_first_is_read(pair: tuple[Mailbox, Mailbox]) -> None:
    sender, receiver = pair
    sender.send(b"1")
    writer = threading.Thread(target=lambda: sender.send(b"2"))
    writer.start()
    writer.join(0.05)
    assert writer.is_alive()
    assert receiver.receive() == b"1"
    assert receiver.receive() == b"2"
    writer.join()


@pytest.mark.parametrize("sync", ["futex"], indirect=True)
def test_a_receiver_that_wakes_nobody(channels: Channels, pair: tuple[Mailbox, Mailbox]) -> None:
    """Receive as upstream AICI does: store 0, without a wake."""
    engine, memory = channels.create("cmd", ""), memory_of(channels, "cmd")
    seen = []
    for message in (b"1", b"2"):
        writer = threading.Thread(target=engine.send, args=(message,))
        writer.start()
        writer.join(0.05)
        if not seen:
            assert not writer.is_alive()
        seen.append(message)
    assert writer.is_alive()
    memory[:4] = bytes(4)
    writer.join()
    assert memory[:5] == b"\x01\0\0\0002"
    memory.close()
    engine.close()


@pytest.mark.parametrize("sync", ["futex"], indirect=True)
def test_a_sender_takes_over_from_one_that_died_while_it_wrote(channels: Channels) -> None:
    engine, memory = channels.create("resp", ""), memory_of(channels, "resp")
    runtime = channels.attach("resp", "")
    memory[SIZE // 2 : SIZE // 2 + 4] = b"\xff\xff\xff\xff"
    runtime.send(b"new")
    assert engine.receive() == b"new"
    for end in (engine, runtime, memory):
        end.close()


def test_a_wild_length_reads_no_further_than_the_region(channels: Channels) -> None:
    sender = channels.create("cmd", "")
    memory = memory_of(channels, "cmd-shm" if channels.sync == "semaphore" else "cmd")
    receiver = channels.attach("cmd", "")
    sender.send(b"{}")
    memory[:4] = b"\xfe\xff\xff\xff"
    assert len(receiver.receive()) == MAX[channels.sync]
    for end in (sender, receiver, memory):
        end.close()


def test_another_size_is_refused(channels: Channels) -> None:
    channels.create("cmd", "").close()
    with pytest.raises(UsageError, match=f"{SIZE} bytes, not {2 * SIZE}"):
        Channels(channels.prefix, channels.sync, 2 * SIZE).attach("cmd", "")


def test_futexes_need_some_room_and_an_engine() -> None:
    channels = Channels(shm.unique_prefix(), "futex", 8192)
    with pytest.raises(UsageError, match="8192 bytes is too small"):
        channels.create("cmd", "")
    channels.unlink()
    with pytest.raises(UsageError, match=f"there is no shared object {channels.prefix}cmd"):
        channels.attach("cmd", "")


def test_a_stale_object_is_replaced(channels: Channels) -> None:
    old = channels.create("cmd", "")
    old.send(b"old")
    new = channels.create("cmd", "")
    new.send(b"new")  # would block on the old one
    assert new.receive() == b"new"
    for end in (old, new):
        end.close()


def test_whoever_waits_is_woken_when_the_peer_is_dead(channels: Channels) -> None:
    empty, full = channels.create("resp", ""), channels.create("cmd", "")
    full.send(b"unread")
    waiting = [threading.Thread(target=empty.receive), threading.Thread(target=lambda: full.send(b"next"))]
    for thread in waiting:
        thread.start()
    waiting[0].join(0.05)
    assert all(thread.is_alive() for thread in waiting)
    for box in (empty, full):
        box.wake_everyone()
    for thread in waiting:
        thread.join()
    for box in (empty, full):
        box.close()


def test_sweep_takes_what_dead_processes_of_this_pid_namespace_left() -> None:
    dead = 2**22 - 3  # beyond every pid in use here
    ours = shm.unique_prefix()
    stale = ours.replace(f"-{os.getpid()}-", f"-{dead}-") + "cmd"
    elsewhere = f"/aici-{dead}-1-ab12-cmd"
    for name in (ours + "cmd", stale, elsewhere):
        shm.create_region(name, 4096).close()
    try:
        shm.sweep()
        assert [name for name in (ours + "cmd", stale, elsewhere) if not os.path.exists(f"/dev/shm{name}")] == [stale]
    finally:
        for name in (ours + "cmd", stale, elsewhere):
            shm.unlink_region(name)


def test_semaphores_start_as_the_protocol_says() -> None:
    channels = Channels(shm.unique_prefix(), "semaphore", SIZE)
    channels.create("cmd", "").close()
    for name, value in (("cmd-wr", 1), ("cmd-rd", 0)):
        semaphore = posix_ipc.Semaphore(channels.prefix + name)
        assert semaphore.value == value
        semaphore.close()
    channels.unlink()
