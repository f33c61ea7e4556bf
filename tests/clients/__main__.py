"""`python -m tests.clients [--make] [--write] [CLIENT...]`: run real clients against `aici serve`.

`--make` installs the clients that are not installed, from the package registries. Results are kept beside the
environments; `--write` writes the table of the documentation from the last results of each client. The exit code is 1
if a check fails without a reason in the catalogue.
"""

import argparse
import sys
from pathlib import Path

from tests.clients import results
from tests.clients.catalogue import CLIENTS, SERVE_ARGS
from tests.clients.client import Check, Client
from tests.clients.table import page, stale_excuses, unexplained
from tests.support.server import serving

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "clients.md"


def _run(client: Client, url: str) -> list[Check]:
    checks = []
    for check in client.checks(url):
        checks.append(check)
        name = ": ".join(filter(None, (check.feature, check.detail)))
        result = "works"
        if check.error:
            result = f"theirs: {excuse}" if (excuse := client.excuse(check)) else f"FAILS: {check.error}"
        print(f"{client.name}: {name}: {result}", flush=True)
    return checks


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--url", help="a server that runs already, without /v1")
    parser.add_argument("client", nargs="*", help="a part of a client's name; all clients by default")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    chosen = [each for each in CLIENTS if not arguments.client or any(part in each.name for part in arguments.client)]
    found: dict[str, list[Check]] = {}
    for client in chosen:
        if arguments.make:
            client.environment.make()
        if not client.is_ready:
            lacks = "run with --make" if not client.environment.is_made else f"set {client.needs} to its folder"
            print(f"{client.name}: not there: {lacks}", flush=True)
    chosen = [client for client in chosen if client.is_ready]
    if arguments.url:
        found = {client.name: _run(client, arguments.url) for client in chosen}
    else:
        with serving(*SERVE_ARGS) as server:
            found = {client.name: _run(client, server.url) for client in chosen}
    wrong = 0
    for client in chosen:
        results.keep(client, found[client.name])
        wrong += len(unexplained(client, found[client.name]))
        for key in stale_excuses(client, found[client.name]):
            print(f"WORKS NOW, though the catalogue says otherwise: {client.name}: {key}")
            wrong += 1
    if arguments.write:
        PAGE.write_text(page(results.kept(CLIENTS)), encoding="utf-8")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
