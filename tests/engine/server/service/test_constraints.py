"""Checks of constraints on the server: by turns, remembered with their failures, and bounded on every route."""

import asyncio
import json
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from aici_base.errors import ControllerError, UnavailableError, UsageError
from aici_controllers import check_cost, constraints
from aici_controllers.check_cost import CostlyRequestError
from aici_controllers.constraints import Constraint
from aici_controllers.store import Store
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.constraints import Constraints
from tests.support.lmtp import connected
from tests.support.openai_api import Api

CHAT = {"model": "it", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
A, B = Principal(name="a"), Principal(name="b")


def run(test: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


class Checks:
    """Stands for the check of a regex. Checks of a pattern in `held` wait until the test releases them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None) -> None:
        self.checked: list[str] = []
        self.held = threading.Event()
        self.held.set()
        self._failure = failure
        monkeypatch.setattr(constraints, "regex", self._check)

    def _check(self, pattern: str) -> Constraint:
        self.checked.append(pattern)
        if "slow" in pattern:
            assert self.held.wait(60)
        if self._failure:
            raise self._failure
        return Constraint("regex", pattern)


def test_a_result_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        checks, known = Checks(monkeypatch), Constraints(Store(fixed={}))
        results = [await known.of(key).regex("a+") for key in (A, B, A)]
        assert checks.checked == ["a+"]
        assert results[0] == results[1] == results[2]

    run(main())


@pytest.mark.parametrize("failure", [UsageError("no", hint="so", param="p"), ControllerError("the guest failed")])
def test_a_failure_is_remembered(monkeypatch: pytest.MonkeyPatch, failure: UsageError) -> None:
    async def main() -> None:
        checks, known = Checks(monkeypatch, failure), Constraints(Store(fixed={}))
        raised = []
        for _ in range(3):
            with pytest.raises(type(failure), match=failure.message) as each:
                await known.of(A).regex("a+")
            raised.append(each.value)
        assert checks.checked == ["a+"]
        assert len(set(map(id, raised))) == 3, "each request has an error of its own, which it may change"
        assert raised[2].hint == failure.hint

    run(main())


def test_a_failure_of_the_installation_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        checks, known = Checks(monkeypatch, UnavailableError("not built")), Constraints(Store(fixed={}))
        for _ in range(2):
            with pytest.raises(UnavailableError):
                await known.of(A).regex("a+")
        assert checks.checked == ["a+", "a+"]

    run(main())


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        checks, known = Checks(monkeypatch), Constraints(Store(fixed={}))
        for number in range(20):
            await known.of(A).regex(f"{number:02}" + "a" * (1 << 20))
        await known.of(A).regex("19" + "a" * (1 << 20))
        assert len(checks.checked) == 20
        await known.of(A).regex("00" + "a" * (1 << 20))
        assert len(checks.checked) == 21

    run(main())


def test_the_same_constraint_at_a_time_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        checks, known = Checks(monkeypatch), Constraints(Store(fixed={}))
        checks.held.clear()
        waiting = [asyncio.create_task(known.of(A).regex("slow")) for _ in range(5)]
        others = [asyncio.create_task(known.of(A).regex(f"{number}")) for number in range(5)]
        await asyncio.gather(*others)
        checks.held.set()
        await asyncio.gather(*waiting)
        assert sorted(checks.checked) == ["0", "1", "2", "3", "4", "slow"]

    run(main())


def test_the_checks_of_a_request_share_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred tools cost no more than two of the largest. A check that came too late succeeds in the next request."""
    monkeypatch.setattr(check_cost, "FUEL", 30_000_000)
    schemas = [json.dumps({"enum": [f"{start + number:09}" for number in range(500)]}) for start in range(9)]

    async def main() -> None:
        known = Constraints(Store(fixed={}))

        async def request() -> None:
            checks = known.of(A)
            for schema in schemas:  # each costs a third of a check's fuel
                await checks.json_schema(schema)

        with pytest.raises(CostlyRequestError, match="of this request are too costly together"):
            await request()
        await request()

    run(main())


def test_the_grammars_of_a_request_share_a_bound() -> None:
    async def main() -> None:
        request = Constraints(Store(fixed={})).of(A)
        grammars = [f'start: "{letter * (130 << 10)}"\n' for letter in "abcd"]
        for grammar in grammars[:3]:
            await request.grammar(grammar, "lark")
        with pytest.raises(CostlyRequestError):
            await request.grammar(grammars[3], "lark")

    run(main())


def test_slow_checks_of_a_key_do_not_hold_up_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        checks, known = Checks(monkeypatch), Constraints(Store(fixed={}))
        checks.held.clear()
        slow = [asyncio.create_task(known.of(A).regex(f"slow{number}")) for number in range(6)]
        await known.of(B).regex("quick")  # ends while all of the other key's are held
        assert not any(task.done() for task in slow)
        checks.held.set()
        await asyncio.gather(*slow)

    run(main())


def costly(number: int) -> dict[str, Any]:
    """A schema of its own for each test: the services of tests share what is remembered."""
    return {"oneOf": [{"pattern": f"(a|b)*a(a|b){{{count}}}"} for count in range(16)], "description": f"{number}"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/check", {"guided_json": costly(0)}),
        ("/v1/completions", {"prompt": "Hi", "guided_json": costly(1)}),
        (
            "/v1/chat/completions",
            CHAT | {"response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": costly(2)}}},
        ),
        (
            "/v1/chat/completions",
            CHAT
            | {
                "tools": [
                    {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": costly(3)}}}}
                ]
            },
        ),
        ("/v1/messages", CHAT | {"guided_json": costly(4)}),
        (
            "/v1/responses",
            {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "it", "schema": costly(5)}}},
        ),
        ("/v1/run", {"controller": "json_schema", "controller_arg": {"schema": costly(6)}, "prompt": "Hi"}),
        (
            "/v1/run",
            {
                "controller": "structural_tag",
                "controller_arg": {"format": {"type": "json_schema", "json_schema": costly(7)}},
            },
        ),
    ],
)
def test_every_route_refuses_a_costly_constraint(
    monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    monkeypatch.setattr(check_cost, "FUEL", 30_000_000)
    api = Api()
    answer = api.post(path, body)
    assert answer.status_code == 400, answer.text
    assert "too costly: the check was given up" in answer.text
    assert "oneOf" in answer.text
    assert not api.engine.submitted


def test_lmtp_refuses_a_costly_constraint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_cost, "FUEL", 30_000_000)

    async def main() -> None:
        async with connected() as client:
            await client.generate(guided_json=costly(8))
            [item] = await client.stream()
            assert "too costly" in str(item["error"])

    run(main())
