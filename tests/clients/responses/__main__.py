"""`python -m tests.clients.responses [--make]`: a table of what each client does with `aici serve`.

`--make` makes the environments that are not there, from the package registries.
"""

import json
import sys

from tests.clients.responses.clients import CLIENTS, SERVE_ARGS, Client
from tests.support.server import serving


def _tried(client: Client, url: str) -> tuple[str, bool]:
    try:
        found = client.run(url)
    except AssertionError as error:
        return f"FAILS: {str(error).splitlines()[-1]}", False
    works = all(found.values())
    return (", ".join(found) if works else f"FAILS: {json.dumps(found)}"), works


def main() -> int:
    failed = 0
    print("| client | version | works |\n|---|---|---|", flush=True)
    with serving(*SERVE_ARGS) as server:
        for client in CLIENTS:
            if "--make" in sys.argv:
                client.make()
            shown = "not there: run with --make"
            if client.is_made:
                shown, works = _tried(client, server.url)
                failed += not works
            print(f"| {client.name} | {client.packages[0]} | {shown} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
