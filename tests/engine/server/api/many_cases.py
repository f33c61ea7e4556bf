"""`python -m tests.engine.server.api.many_cases [--cases 3000]`: random requests against a real `aici serve`.

Half of the requests are allowed by the OpenAPI document, half are not. Of the allowed ones, two in three have few of
the optional fields and name no model, so that many are answered. The driver prints each failure once, with the body
that led to it. The exit code is 1 if a request failed: a status 5xx, an answer that the document does not describe, or
no answer.
"""

import argparse
import json
import sys
from collections import Counter
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode

from tests.engine.server.api.test_openapi import CHECKS, ENDS_THE_SERVER
from tests.support.server import serving

SERVE_ARGS = ("--max-context", "96")
"""A short context ends every answer soon."""


NEEDED = ("prompt", "messages", "input", "max_tokens", "controller", "controller_arg", "text", "tokens")
SHORT = {
    "prompt": "Once",
    "messages": [{"role": "user", "content": "Hi"}],
    "input": "Hi",
    "max_tokens": 8,
    "controller": "none",
    "controller_arg": "",
}
"""Values for fields whose random values are hardly ever valid."""


class Failures:
    """Counts failures, and prints the first of each kind. `is_allowed`: the requests are allowed by the document."""

    def __init__(self) -> None:
        self.num_cases = 0
        self.is_allowed = False
        self.statuses: Counter[int] = Counter()
        self.kinds: Counter[str] = Counter()

    def check(self, case: schemathesis.Case) -> None:
        """Send a request and check the answer."""
        self.num_cases += 1
        if self.is_allowed and isinstance(case.body, dict) and self.num_cases % 3:
            case.body = thinned(case.body, self.num_cases)
        try:
            response = case.call(timeout=120)
            self.statuses[response.status_code] += 1
            case.validate_response(response, checks=CHECKS)
        except Exception as failure:  # noqa: BLE001 every kind of failure is reported
            said = str(failure)
            kind = f"{case.operation.label}: {type(failure).__name__}: {said[:300]}"
            self.kinds[kind] += 1
            if self.kinds[kind] == 1:
                body = json.dumps(case.body, default=str) if case.body else ""
                print(
                    f"FAILED {kind}\n  path {case.path_parameters} query {case.query}\n  body {body[:2000]}", flush=True
                )


def thinned(body: dict[str, Any], number: int) -> dict[str, Any]:
    """Return a body with the fields that all requests need and two others, chosen by `number`."""
    needed = {name: value for name, value in body.items() if name in NEEDED}
    others = [name for name in body if name not in needed and name not in ("model", "n", "best_of")]
    chosen = {others[(number + step) % len(others)] for step in (0, 7)} if others else set()
    return needed | {name: body[name] for name in chosen} | {name: SHORT[name] for name in SHORT.keys() & body.keys()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--only", default="", help="a part of the operations' names")
    arguments = parser.parse_args()
    if arguments.url:
        return run(arguments.url, arguments)
    with serving(*SERVE_ARGS) as server:
        return run(server.url, arguments)


def run(url: str, arguments: argparse.Namespace) -> int:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [each.ok() for each in schema.get_all_operations() if each.ok().path != ENDS_THE_SERVER]
    operations = [each for each in operations if arguments.only in each.label]
    pairs = [
        (operation, mode)
        for operation in operations
        for mode in GenerationMode
        if not mode.is_negative or any(body.media_type == "application/json" for body in operation.body)
    ]
    # An operation without a body has few different requests.
    weights = [10 if operation.body else 1 for operation, _ in pairs]
    failures = Failures()
    for (operation, mode), weight in zip(pairs, weights, strict=True):
        failures.is_allowed = not mode.is_negative
        num = max(1, round(arguments.cases * weight / sum(weights)))

        @seed(arguments.seed)
        @settings(
            max_examples=num,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: schemathesis.Case) -> None:
            failures.check(case)

        send()
        print(f"{operation.label}, {mode.value}: {failures.num_cases} requests so far", flush=True)
    print(f"{failures.num_cases} requests, by status {dict(sorted(failures.statuses.items()))}")
    print(f"{sum(failures.kinds.values())} failures of {len(failures.kinds)} kinds")
    return 1 if failures.kinds else 0


if __name__ == "__main__":
    sys.exit(main())
