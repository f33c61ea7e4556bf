"""`aici serve` with a certificate, and commands that ask the server."""

import os
import subprocess
from pathlib import Path

import pytest
import trustme

from tests.support.cli import AICI
from tests.support.server import serving

pytestmark = pytest.mark.e2e


def test_commands_reach_a_server_with_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    with serving("--tls-cert", str(tmp_path / "server.pem")) as server:
        assert server.url.startswith("https://")
        trusting = os.environ | {"SSL_CERT_FILE": str(tmp_path / "ca.pem")}
        for command in (
            ["run", "Hello", "--max-tokens", "2", "--server", server.url],
            ["lmtp", server.url],
        ):
            done = subprocess.run(
                [*AICI, *command], env=trusting, input="Hi max_tokens=2", capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 0, done.stderr
        alone = subprocess.run(
            [*AICI, "ctrl", "list", "--server", server.url], capture_output=True, text=True, timeout=60
        )
        assert alone.returncode == 3
        assert "certificate" in alone.stderr
