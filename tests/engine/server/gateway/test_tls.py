"""TLS: certificates, their renewal, certificates of clients, and files that cannot be used."""

import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from http.client import HTTPSConnection
from pathlib import Path

import anyio.to_thread
import pytest
import trustme
from websockets.sync.client import connect

from aici_base.errors import UsageError
from aici_engine.server.api.app import create_app
from aici_engine.server.config import TlsFiles
from aici_engine.server.gateway.tls import ServerTls
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over
from tests.support.http import listening
from tests.support.lmtp import run

CA = trustme.CA()


def files_of(folder: Path, ca: trustme.CA = CA) -> TlsFiles:
    """Write a new certificate of this machine."""
    issued = ca.issue_cert("127.0.0.1")
    found = TlsFiles(folder / "cert.pem", folder / "key.pem")
    found.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    found.key.write_bytes(issued.private_key_pem.bytes())
    found.key.chmod(0o600)
    return found


def trusting(*, shown: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    CA.configure_trust(context)
    if shown is not None:
        shown.configure_cert(context)
    return context


@contextlib.asynccontextmanager
async def serving(tls: ServerTls) -> AsyncIterator[int]:
    async with listening(create_app(service_over(FakeEngine())), tls=tls) as port:
        yield port


class Client(HTTPSConnection):
    """A connection that is kept open between requests."""

    def status(self) -> int:
        self.request("GET", "/health")
        answer = self.getresponse()
        answer.read()
        return answer.status

    def serial(self) -> str:
        shown = self.sock.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])


def client(port: int, context: ssl.SSLContext | None = None) -> Client:
    return Client("127.0.0.1", port, context=context or trusting(), timeout=30)


@run
async def test_https_and_wss(tmp_path: Path) -> None:
    async with serving(ServerTls(files_of(tmp_path))) as port:

        def ask() -> None:
            with contextlib.closing(client(port)) as https:
                assert (https.status(), https.status()) == (200, 200)
            with connect(f"wss://127.0.0.1:{port}/lmtp?greeting=1", ssl=trusting()) as socket:
                assert "ready" in str(socket.recv(timeout=30))
            with contextlib.closing(client(port, ssl.create_default_context())) as https, pytest.raises(ssl.SSLError):
                https.status()

        await anyio.to_thread.run_sync(ask)


@run
async def test_a_renewed_certificate_is_used_and_open_connections_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(ServerTls(files_of(tmp_path))) as port:

        def ask() -> None:
            with contextlib.closing(client(port)) as before, contextlib.closing(client(port)) as after:
                assert before.status() == 200
                files_of(tmp_path)
                assert (after.status(), before.status()) == (200, 200)
                assert before.serial() != after.serial()
                (tmp_path / "key.pem").write_text("no key")
                with contextlib.closing(client(port)) as later:
                    assert later.status() == 200
                    assert later.serial() == after.serial()
                (tmp_path / "key.pem").unlink()
                with contextlib.closing(client(port)) as later:
                    assert later.status() == 200
                files_of(tmp_path)
                with contextlib.closing(client(port)) as renewed:
                    assert renewed.status() == 200
                    assert renewed.serial() != after.serial()

        await anyio.to_thread.run_sync(ask)
    assert caplog.text.count("the certificate stays as it was") == 2
    assert caplog.text.count("read again") == 2


@run
async def test_clients_with_certificates(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "clients.pem")
    files = files_of(tmp_path)._replace(client_ca=tmp_path / "clients.pem")
    async with serving(ServerTls(files)) as port:

        def ask() -> None:
            for _ in range(2):  # also with renewed files
                known = trusting(shown=authority.issue_cert("alice@example.org"))
                with contextlib.closing(client(port, known)) as https:
                    assert https.status() == 200
                for context in (trusting(), trusting(shown=CA.issue_cert("mallory@example.org"))):
                    with contextlib.closing(client(port, context)) as https, pytest.raises(OSError):  # noqa: PT011
                        https.status()
                files_of(tmp_path)
            other.cert_pem.write_to_path(tmp_path / "clients.pem")
            with contextlib.closing(client(port, trusting(shown=other.issue_cert("bob@example.org")))) as https:
                assert https.status() == 200
            with contextlib.closing(client(port, known)) as https, pytest.raises(OSError):  # noqa: PT011
                https.status()

        await anyio.to_thread.run_sync(ask)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    (tmp_path / "other").mkdir()
    other = files_of(tmp_path / "other")
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    for wrong, said in (
        (files._replace(certificate=tmp_path / "none.pem"), "No such file"),
        (files._replace(certificate=text), "cannot use the certificate"),
        (files._replace(key=text), "cannot use the certificate"),
        (files._replace(key=other.key), "mismatch"),
        (files._replace(client_ca=text), "cannot read certificates"),
        (files._replace(client_ca=tmp_path / "none.pem"), "cannot read certificates"),
    ):
        with pytest.raises(UsageError, match=said):
            ServerTls(wrong)


def test_an_encrypted_key_asks_nobody(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    files = files_of(tmp_path)
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(UsageError, match="encrypted"):
        ServerTls(files)


def test_certificate_and_key_in_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = files_of(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(files.certificate.read_bytes() + files.key.read_bytes())
    both.chmod(0o644)
    ServerTls(TlsFiles(both, both))
    assert "every user of this machine can read" in caplog.text
