"""The Unix socket of a node daemon."""

import socket
from pathlib import Path

import pytest

from aici_base.errors import InUseError
from aici_engine.cluster.control_socket import ControlServer
from tests.support.descriptors import no_descriptor_left


def test_a_daemon_without_descriptors_goes_on_and_answers_later(tmp_path: Path) -> None:
    path = tmp_path / "node-a.sock"
    with (
        ControlServer(path, lambda command: (f"heard {command}", True)) as server,
        socket.socket(socket.AF_UNIX) as user,
    ):
        with no_descriptor_left():
            server.advance()  # nobody is there
        user.connect(str(path))
        user.sendall(b"status\n")
        with no_descriptor_left():
            server.advance()  # a user waits
        server.advance()
        user.settimeout(5)
        assert user.recv(100) == b"heard status\n"


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    shared, link = tmp_path / "shared", tmp_path / "link"
    shared.mkdir()
    shared.chmod(0o777)
    link.symlink_to(tmp_path)
    for folder in (shared, link):
        with pytest.raises(InUseError, match="is not a folder that this user alone can write to"):
            ControlServer(folder / "node-a.sock", lambda command: ("", True))
