"""The proxies of docs/how-to/deploy.md, with the configurations of the page: streams, WebSockets, the client's address.

A test is skipped where the program of the proxy is not installed.
"""

import contextlib
import json
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from websockets.sync.client import connect

from tests.support.model import default_model_dir
from tests.support.processes import wait_until
from tests.support.server import Server, serving

pytestmark = pytest.mark.e2e

_PAGE = Path(__file__).parents[2] / "docs/how-to/deploy.md"
_NAME = "models.example.org"
_CLIENT = "127.0.0.2"
"""The address from which the client of the tests comes."""
_NGINX = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{server}
}}
"""
_CADDY = """\
{{
    admin off
    auto_https disable_redirects
    storage file_system {folder}/caddy
}}
{server}
"""


def block_with(text: str) -> str:
    """Return the code block of the page that has this text."""
    [found] = [each for each in re.findall(r"```text\n(.*?)```", _PAGE.read_text(), re.DOTALL) if text in each]
    assert isinstance(found, str)
    return found


def replaced(text: str, **changes: str) -> str:
    """Replace texts that stand in a configuration; fail for a text that does not."""
    for old, new in changes.items():
        assert old in text, f"{old!r} is not in {_PAGE}"
        text = text.replace(old, new)
    return text


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--trusted-proxy", "127.0.0.1", "--allow-host", _NAME, "--log-format", "json") as server:
        yield server


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


Start = Callable[[str], int]


@pytest.fixture
def started(server: Server, authority: trustme.CA, tmp_path: Path) -> Iterator[Start]:
    """Start a proxy and return its port; the proxy ends with the test."""
    issued = authority.issue_cert(_NAME)
    certificate, key = tmp_path / "fullchain.pem", tmp_path / "privkey.pem"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    upstream = server.url.removeprefix("http://")

    def configured(program: str, port: int) -> list[str]:
        path = tmp_path / f"{program}.conf"
        if program == "nginx":
            changes = {
                "127.0.0.1:4242": upstream,
                "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
                f"/etc/letsencrypt/live/{_NAME}/": f"{tmp_path}/",
            }
            path.write_text(_NGINX.format(folder=tmp_path, server=replaced(block_with("proxy_pass"), **changes)))
            return ["-p", str(tmp_path), "-c", str(path)]
        changes = {
            "127.0.0.1:4242": upstream,
            f"{_NAME} {{": f"{_NAME}:{port} {{\n    bind 127.0.0.1\n    tls {certificate} {key}",
        }
        path.write_text(_CADDY.format(folder=tmp_path, server=replaced(block_with("reverse_proxy"), **changes)))
        return ["run", "--adapter", "caddyfile", "--config", str(path)]

    with contextlib.ExitStack() as stack:

        def start(program: str) -> int:
            found = shutil.which(program) or shutil.which(program, path="/usr/sbin")
            if found is None:
                pytest.skip(f"{program} is not installed")
            port = free_port()
            log = stack.enter_context((tmp_path / "log").open("w"))
            command = [found, *configured(program, port)]
            environment = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
            process = stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
            stack.callback(process.terminate)

            def listens() -> bool:
                assert process.poll() is None, (tmp_path / "log").read_text()
                with socket.socket() as client:
                    return client.connect_ex(("127.0.0.1", port)) == 0

            assert wait_until(listens, 30), (tmp_path / "log").read_text()
            return port

        yield start


def dialled(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(_CLIENT, 0))


@pytest.mark.parametrize("program", ["nginx", "caddy"])
def test_a_proxy_of_the_page(server: Server, authority: trustme.CA, started: Start, program: str) -> None:
    port = started(program)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    # A stream: the first token is here while the server still computes.
    asked = {"model": default_model_dir().name, "prompt": "Once", "max_tokens": 2000, "ignore_eos": True}
    body = json.dumps(asked | {"stream": True})
    with trusting.wrap_socket(dialled(port), server_hostname=_NAME) as client:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {_NAME}\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        came = b""
        while b"data: " not in came:
            more = client.recv(4096)
            assert more, came
            came += more
        assert came.startswith(b"HTTP/1.1 200")
        assert server.stats()["active_requests"] == 1
    # The client has left: the proxy leaves the server, whose sequence ends.
    assert wait_until(lambda: server.stats()["active_requests"] == 0, 10)

    # A WebSocket.
    wrapped = dialled(port)
    with connect(f"wss://{_NAME}:{port}/lmtp?greeting=1", sock=wrapped, ssl=trusting, server_hostname=_NAME) as lmtp:
        assert "ready" in str(lmtp.recv(timeout=30))

    # The log has the client's address, not the proxy's.
    lines = [json.loads(line) for line in server.said if line.startswith("{")]
    assert {line.get("client") for line in lines if line.get("path") == "/v1/completions"} == {_CLIENT}
