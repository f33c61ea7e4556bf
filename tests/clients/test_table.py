"""The table of clients: its cells, its notes, and the committed page."""

import pytest

from tests.clients.__main__ import PAGE
from tests.clients.catalogue import CLIENTS
from tests.clients.client import PROGRAMS, Check, Client
from tests.clients.environment import PythonEnvironment
from tests.clients.table import FEATURES, page, stale_excuses, unexplained

GOOD, BAD = "", "APIError: no"
CLIENT = Client("it", (), PythonEnvironment(("it==1",)), {"tools: named": "it cannot", "usage": "it has none"})


def cells(*checks: Check) -> dict[str, str]:
    """Return the cells of the first client's row, by feature."""
    name = CLIENTS[0].name
    rows = [line for line in page({name: checks}).splitlines() if line.startswith(f"| {name} |")]
    return dict(zip(FEATURES, [cell.strip() for cell in rows[0].split("|")][2:], strict=False))


def test_a_cell_says_what_the_checks_found() -> None:
    found = cells(
        Check("chat", "", GOOD), Check("tools", "a", GOOD), Check("tools", "b", GOOD), Check("usage", "", BAD)
    )
    assert found["chat"] == "✓"
    assert found["tools"] == "✓ 2"
    assert found["usage"] == "✗"
    assert found["errors"] == ""


def test_a_reason_excuses_its_check_alone() -> None:
    checks = [Check("tools", "named", BAD), Check("tools", "streamed", BAD), Check("usage", "any", BAD)]
    assert [check.detail for check in unexplained(CLIENT, checks)] == ["streamed"]
    assert stale_excuses(CLIENT, checks) == []
    assert stale_excuses(CLIENT, [Check("tools", "named", GOOD)]) == ["tools: named", "usage"]


def test_programs_and_clients_fit() -> None:
    used = {program for client in CLIENTS for program in client.programs}
    there = {path.name for path in PROGRAMS.iterdir() if path.is_file()} - {"features.py", "features.mjs"}
    assert used == there


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_the_page_has_the_client_in_its_version(client: Client) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"| {client.name} |" in text, "run: python -m tests.clients --make --write"
    for package in client.environment.packages:
        assert f"`{package}`" in text, "run: python -m tests.clients --make --write"
    assert "✗" not in text.partition("## Versions")[0].partition("\n| client |")[2]
