import os
import threading
from collections.abc import Iterator

import posix_ipc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aici_runtime import shm
from aici_runtime.channel import Mailbox, MailboxNames, MessageTooLargeError
from aici_runtime.errors import UsageError

SIZE = 8192


@pytest.fixture
def names() -> Iterator[MailboxNames]:
    names = MailboxNames.of(shm.unique_prefix(), "cmd", "-side")
    yield names
    Mailbox.unlink(names)


@pytest.fixture
def pair(names: MailboxNames) -> Iterator[tuple[Mailbox, Mailbox]]:
    sender, receiver = Mailbox.create(names, SIZE), Mailbox.attach(names, SIZE)
    yield sender, receiver
    sender.close()
    receiver.close()


def test_names_are_those_of_the_protocol() -> None:
    names = MailboxNames.of("/aici0-", "cmd", "-side")
    assert names == MailboxNames("/aici0-cmd-side-shm", "/aici0-cmd-side-wr", "/aici0-cmd-side-rd")
    assert MailboxNames.of("/aici0-", "resp", "").region == "/aici0-resp-shm"


def test_golden_frame(names: MailboxNames, pair: tuple[Mailbox, Mailbox]) -> None:
    pair[0].send(b'{"op":"ping"}')
    memory = shm.attach_region(names.region, SIZE)
    assert memory[:17].hex() == "0d0000007b226f70223a2270696e67227d"
    assert pair[1].receive() == b'{"op":"ping"}'
    assert memory[:4] == bytes(4)  # the receiver resets the length
    memory.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(messages=st.lists(st.binary(max_size=SIZE - 4), max_size=8))
def test_every_message_arrives_once_and_in_order(pair: tuple[Mailbox, Mailbox], messages: list[bytes]) -> None:
    sender, receiver = pair
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.extend(receiver.receive() for _ in messages))
    reader.start()
    for message in messages:
        sender.send(message)
    reader.join()
    assert received == messages


def test_the_limit_is_exact_and_nothing_is_sent_beyond(pair: tuple[Mailbox, Mailbox]) -> None:
    with pytest.raises(MessageTooLargeError, match=rf"msg too large; {SIZE - 3} \+ 4 > {SIZE}"):
        pair[0].send(b"x" * (SIZE - 3))
    pair[0].send(b"y" * (SIZE - 4))
    assert pair[1].receive() == b"y" * (SIZE - 4)


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


def test_a_wild_length_reads_no_further_than_the_region(names: MailboxNames, pair: tuple[Mailbox, Mailbox]) -> None:
    memory = shm.attach_region(names.region, SIZE)
    pair[0].send(b"{}")
    memory[:4] = b"\xff\xff\xff\xff"
    assert len(pair[1].receive()) == SIZE - 4
    memory.close()


def test_another_size_is_refused(names: MailboxNames, pair: tuple[Mailbox, Mailbox]) -> None:
    with pytest.raises(UsageError, match="8192 bytes, not 4096"):
        shm.attach_region(names.region, 4096)


def test_a_stale_object_is_replaced(names: MailboxNames) -> None:
    old = Mailbox.create(names, SIZE)
    old.send(b"old")
    new = Mailbox.create(names, SIZE)
    new.send(b"new")  # would block on the old semaphore
    assert new.receive() == b"new"
    old.close()
    new.close()


def test_sweep_takes_what_dead_processes_of_this_pid_namespace_left() -> None:
    dead = 2**22 - 3  # beyond every pid that is in use here
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


def test_interrupted_waits_go_on(pair: tuple[Mailbox, Mailbox]) -> None:
    """EINTR: the original gave up."""
    import signal

    seen = []
    previous = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        threading.Timer(0.15, lambda: pair[0].send(b"late")).start()
        assert pair[1].receive() == b"late"
        assert seen == [1]
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_semaphores_start_as_the_protocol_says(names: MailboxNames, pair: tuple[Mailbox, Mailbox]) -> None:
    for name, value in ((names.writer, 1), (names.reader, 0)):
        semaphore = posix_ipc.Semaphore(name)
        assert semaphore.value == value
        semaphore.close()
