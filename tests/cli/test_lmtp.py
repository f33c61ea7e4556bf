"""`aici lmtp`: parsing of lines, addresses, and failures. tests/e2e/test_lmtp.py uses a real server."""

from typing import Any

import pytest

from aici_base.errors import UsageError
from aici_cli.lmtp import address, parse_line
from tests.support.cli import aici


@pytest.mark.parametrize(
    ("line", "prompt", "parameters"),
    [
        ("Hello there temperature=1.2", "Hello there", {"temperature": 1.2}),
        ("Hello there ", "Hello there ", {}),
        ('a x=5 b seed=1  logit_bias={"1": 100, "2": -1}', "a x=5 b", {"seed": 1, "logit_bias": {"1": 100, "2": -1}}),
        ("if a = b then", "if a = b then", {}),
        ("if a=b then", "if a=b then", {}),
        ('buffer="it" prompt=[1, 2]', "", {"buffer": "it", "prompt": [1, 2]}),
    ],
)
def test_a_line_is_a_prompt_and_parameters(line: str, prompt: str, parameters: dict[str, Any]) -> None:
    assert parse_line(line) == (prompt, parameters)


@pytest.mark.parametrize("line", ["Hello temperature=hot", "x=", "Hello temperature=__import__('os')"])
def test_a_value_that_is_not_json_is_an_error(line: str) -> None:
    with pytest.raises(UsageError, match="not JSON"):
        parse_line(line)


@pytest.mark.parametrize(
    ("server", "url", "key"),
    [
        ("localhost:8080", "ws://localhost:8080/lmtp", None),
        ("http://h/v1/#key=abc", "ws://h/lmtp", "Bearer abc"),
        ("https://me:pw@h:1/x/lmtp?api_key=3", "wss://me:pw@h:1/x/lmtp?api_key=3", None),
    ],
)
def test_the_address_of_the_connection(server: str, url: str, key: str | None) -> None:
    assert address(server) == (url, {"Authorization": key} if key else {})


@pytest.mark.parametrize(
    ("server", "code", "said"),
    [
        ("127.0.0.1:1", 3, "cannot be reached"),
        ("ws://localhost:99999", 2, "is no server's address"),
        ("ftp://localhost", 2, "is no server's address"),
        ("[", 2, "is no server's address"),
    ],
)
def test_an_unreachable_server(server: str, code: int, said: str) -> None:
    done = aici("lmtp", server, stdin="Hello")
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
