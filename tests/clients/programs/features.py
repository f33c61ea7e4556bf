"""What the programs report: one line of JSON for each check. Imported by programs in the clients' environments."""

import json
from collections.abc import Callable
from typing import Any


def feature(name: str, detail: str = "") -> Callable[[Callable[[], Any]], None]:
    """Run the decorated function. The check has passed if the function returns something true."""

    def check(function: Callable[[], Any]) -> None:
        try:
            found = function()
            error = "" if found else f"found {found!r}"
        except Exception as failure:  # the report of a failure is this program's purpose
            error = f"{type(failure).__name__}: {failure}"[:600] or "failed"
        print(json.dumps({"feature": name, "detail": detail, "error": error}), flush=True)

    return check


def report(name: str, found: dict[str, Any]) -> None:
    """Report the checks of a feature that a program made by itself: true values have passed."""
    for detail, value in found.items():
        feature(name, detail)(lambda value=value: value)
