"""The cluster token: its file, and what follows from it."""

import concurrent.futures
import os
import re
from pathlib import Path

import pytest
import zmq
from zmq.utils import z85

from aici_base.errors import NotFoundError, UnavailableError, UsageError
from aici_engine.cluster.token import ClusterToken, default_token_path


def test_a_file_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "aici" / "cluster-token"
    token, created = ClusterToken.read_or_create(path)
    assert created
    assert path.stat().st_mode & 0o777 == 0o600
    assert re.fullmatch("[0-9a-f]{64}\n", path.read_text())
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    again, created = ClusterToken.read_or_create(path)
    assert not created
    assert again.secret == token.secret == ClusterToken.read(path).secret


def test_processes_that_make_the_file_at_once_agree(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ClusterToken.read_or_create(path), range(32)))
    assert len({token.secret for token, _ in found}) == 1
    assert sum(created for _, created in found) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    secret = ClusterToken.read_or_create(path)[0].secret.hex()
    path.chmod(mode)
    with pytest.raises(UsageError, match=f"mode 0{mode:o}") as error:
        ClusterToken.read_or_create(path)
    assert error.value.hint.startswith(f"chmod 600 {path}")
    assert secret not in repr(error.value) + error.value.hint


@pytest.mark.parametrize("text", ["", "ab" * 31, "ab" * 33, "AB" * 32, "xy" * 32, "ab" * 32 + "\n\n"])
def test_anything_else_is_no_token(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(UsageError, match="is not a cluster token"):
        ClusterToken.read_or_create(path)


def test_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no cluster token"):
        ClusterToken.read(tmp_path / "token")
    with pytest.raises(UsageError, match="cannot be read"):
        ClusterToken.read(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="Not a directory"):
        ClusterToken.read_or_create(tmp_path / "file" / "token")
    with pytest.raises(UnavailableError, match="cannot be written"):
        ClusterToken.read_or_create(Path("/proc/token"))


def test_what_is_derived_is_stable_and_shows_nothing() -> None:
    token = ClusterToken(bytes(range(32)))
    public, secret = token.client_keys()
    assert (public, secret) == ClusterToken(bytes(range(32))).client_keys()
    assert zmq.curve_public(secret) == public
    assert len(z85.decode(secret)) == 32
    assert token.cluster == "d18e92d66039b9db"
    assert token.mac(b"a") != token.mac(b"b")
    assert len({token.secret, z85.decode(secret), z85.decode(public), token.mac(b"")}) == 4
    assert repr(token) == f"<ClusterToken of {token.cluster}>"
    other = ClusterToken.new()
    assert other.cluster != token.cluster
    assert other.client_keys() != token.client_keys()


def test_the_default_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/config")
    assert default_token_path() == Path("/config/aici/cluster-token")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert default_token_path() == Path(os.environ["HOME"]) / ".config/aici/cluster-token"
