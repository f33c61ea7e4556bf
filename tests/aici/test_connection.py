"""The connections of the client: kept, broken off by another thread, read line by line, trusted."""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aici.remote.connection import Exchange, Server
from aici_base.errors import AiciError, UnreachableError
from tests.support.processes import wait_until

CERTIFICATE = Path(__file__).with_name("localhost.pem")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Peer:
    """A server that answers request number i of a connection with `answers[i]`; without an answer it is silent."""

    def __init__(self, answers: list[bytes], context: ssl.SSLContext | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._answers = answers
        self._context = context
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[list[bytes]] = []
        """For each connection, the beginnings of its requests."""

    def __enter__(self) -> "Peer":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.requests.append([])
                threading.Thread(target=self._serve, args=(connection, self.requests[-1]), daemon=True).start()

    def _serve(self, connection: socket.socket, requests: list[bytes]) -> None:
        with contextlib.suppress(OSError), connection:
            stream = self._context.wrap_socket(connection, server_side=True) if self._context else connection
            with stream:
                for answer in self._answers:
                    if not (told := stream.recv(65536)):
                        return
                    requests.append(told)
                    stream.sendall(answer)
                told = stream.recv(65536)
                if told:
                    requests.append(told)
                    stream.recv(1)  # until the client leaves

    @property
    def num_requests(self) -> int:
        return sum(map(len, self.requests))


def get(server: Server) -> None:
    with server.json("GET", "/models"):
        pass


@contextlib.contextmanager
def waiting(exchange: Exchange) -> Iterator[Callable[[], BaseException | None]]:
    """Wait for the answer in a thread. Yield a function that ends the thread and returns the error."""
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            exchange.response().read()
        except AiciError as error:
            errors.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()

    def ended() -> BaseException | None:
        thread.join(60)
        assert not thread.is_alive()
        return errors[0] if errors else None

    yield ended


def test_requests_share_a_connection() -> None:
    with Peer([OK, OK, OK]) as peer:
        server = Server(peer.url)
        for _ in range(3):
            get(server)
    assert [len(requests) for requests in peer.requests] == [3]


def test_a_kept_connection_that_the_server_closed_is_not_used() -> None:
    with Peer([OK, OK.replace(b"200 OK\r\n", b"200 OK\r\nConnection: close\r\n")]) as peer:
        server = Server(peer.url)
        for _ in range(4):
            get(server)
    assert [len(requests) for requests in peer.requests] == [2, 2]


@pytest.mark.parametrize("num_before", [0, 1], ids=["new", "kept"])
def test_a_request_is_broken_off_while_it_waits_for_headers(num_before: int) -> None:
    with Peer([OK] * num_before) as peer:
        server = Server(peer.url)
        for _ in range(num_before):
            get(server)
        exchange = server.send("GET", "/models")
        with exchange, waiting(exchange) as ended:
            assert wait_until(lambda: peer.num_requests == num_before + 1, 60)
            exchange.break_off()
            assert isinstance(ended(), AiciError)


def test_a_request_that_is_broken_off_before_it_is_sent_ends_too() -> None:
    with Peer([]) as peer, Server(peer.url).send("GET", "/models") as exchange:
        exchange.break_off()
        with pytest.raises(AiciError, match="broke"):
            exchange.response()


def test_an_exchange_at_its_end_leaves_the_connection_to_the_next() -> None:
    with Peer([OK, OK]) as peer:
        server = Server(peer.url)
        first = server.send("GET", "/models")
        with first:
            first.response().read()
        first.break_off()
        with server.send("GET", "/models") as second:
            assert second.response().read() == b"{}"
    assert [len(requests) for requests in peer.requests] == [2]


def test_a_request_after_the_end_of_the_client_is_an_error_of_ours() -> None:
    with Peer([OK]) as peer:
        server = Server(peer.url)
        server.close()
        with pytest.raises(AiciError, match="closed"):
            get(server)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_only_a_newline_ends_a_line(size: int) -> None:
    text = 'data: {"text": "a\u2028b\u0085c\rd\x0be"}\n\ndata: [DONE]\nrest'.encode()
    chunks = [text[i : i + size] for i in range(0, len(text), size)]
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    with Peer([answer]) as peer, Server(peer.url).send("GET", "/models") as exchange:
        assert list(exchange.lines()) == text.split(b"\n")


def test_a_closed_connection_ends_no_process() -> None:
    """The command line has SIGPIPE's default action, which ends a process that writes to a closed connection."""
    program = """
import signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
from aici.errors import AiciError
from aici.remote.connection import Server
try:
    with Server(sys.argv[1]).json("POST", "/controllers", bytes(30 << 20)):
        pass
except AiciError as error:
    print(type(error).__name__)
"""
    full = b"HTTP/1.1 413 x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-c", program, f"http://127.0.0.1:{listener.getsockname()[1]}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(full)
            said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert said.strip() in ("TooLargeError", "AiciError")


def test_a_forked_child_has_connections_of_its_own() -> None:
    with Peer([OK] * 10) as peer:
        server = Server(peer.url)
        get(server)
        child = os.fork()
        if child == 0:
            try:
                get(server)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        get(server)
    assert [len(requests) for requests in peer.requests] == [2, 1]


@pytest.fixture
def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


def test_https_trusts_the_certificates_of_ssl_cert_file(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with Peer([OK, OK], tls) as peer:
        server = Server(peer.url)
        get(server)
        get(server)
    assert [len(requests) for requests in peer.requests] == [2]


def test_https_refuses_an_unknown_certificate_and_says_what_to_do(tls: ssl.SSLContext) -> None:
    with Peer([OK], tls) as peer, pytest.raises(UnreachableError, match="cannot be trusted") as error:
        get(Server(peer.url))
    assert "SSL_CERT_FILE" in error.value.hint_for("cli")
    assert peer.num_requests == 0


def test_a_request_over_https_is_broken_off_too(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with Peer([], tls) as peer:
        exchange = Server(peer.url).send("GET", "/models")
        with exchange, waiting(exchange) as ended:
            assert wait_until(lambda: peer.num_requests == 1, 60)
            exchange.break_off()
            assert isinstance(ended(), AiciError)
