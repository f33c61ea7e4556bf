"""Addresses of stages."""

import pytest

from aici_base.errors import UsageError
from aici_engine.cluster.address import StageAddress

KEY = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "text",
    [f"tcp://10.0.0.2:7100#{KEY}", "tcp://host-1.example:1", f"tcp://[fe80::1%eth0]:65535#{KEY}", "tcp://[::]:0"],
)
def test_round_trip(text: str) -> None:
    assert str(StageAddress.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.2:7100",
        "udp://10.0.0.2:7100",
        "tcp://10.0.0.2",
        "tcp://10.0.0.2:",
        "tcp://10.0.0.2:65536",
        "tcp://::1:7100",
        "tcp://a b:7100",
        "tcp://10.0.0.2:7100#",
        f"tcp://10.0.0.2:7100#{KEY}00",
        f"tcp://10.0.0.2:7100#{KEY[:-1]}g",
        f"tcp://10.0.0.2:7100#{KEY},tcp://10.0.0.3:7100#{KEY}",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        StageAddress.parse(text)


@pytest.mark.parametrize(
    ("host", "is_private"),
    [
        ("127.0.0.1", True),
        ("192.168.1.1", True),
        ("fd00::1", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("8.8.8.8", False),
        ("2606:4700::1", False),
    ],
)
def test_private(host: str, is_private: bool) -> None:
    assert StageAddress(host, 1).is_private == is_private
