"""A line gets the answer that the same request gets over HTTP."""

import asyncio
import json
import re
from typing import Any

import pytest

from aici_engine.server.batches.in_process import InProcess
from aici_engine.server.batches.line import Answer, Line
from aici_engine.server.service.admission import Principal
from tests.support.fake_engine import says, silent
from tests.support.openai_api import Api

_CHAT = "/v1/chat/completions"
_MESSAGES = [{"role": "user", "content": "Hello"}]


async def _ready(line: Line) -> None: ...


def _answer(api: Api, line: Line, principal: Principal | None = None) -> Answer:
    return asyncio.run(_with_timeout(InProcess(api.app, principal or Principal(), _ready), line))


async def _with_timeout(answerer: InProcess, line: Line) -> Answer:
    async with asyncio.timeout(30):
        return await answerer(line)


def _lasting(body: Any) -> Any:
    return {name: value for name, value in body.items() if name not in ("id", "created")}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (_CHAT, {"messages": _MESSAGES}),
        ("/v1/completions", {"prompt": ["a", "b"]}),
        (_CHAT, {"messages": []}),
        (_CHAT, {"messages": _MESSAGES, "model": "another"}),
        (_CHAT, {"messages": _MESSAGES, "unknown": 1}),
        ("/v1/nowhere", {}),
    ],
)
def test_as_over_http(path: str, body: dict[str, Any]) -> None:
    api = Api(says("Hel", "lo"))
    over_http = api.post(path, body)
    answer = _answer(api, Line("a", path, body))
    assert answer.status == over_http.status_code
    assert answer.is_error == (over_http.status_code != 200)
    assert _lasting(json.loads(answer.body)) == _lasting(over_http.json())
    assert answer.request_id


def test_streams_are_refused() -> None:
    api = Api(says("no"))
    answer = _answer(api, Line("a", _CHAT, {"messages": _MESSAGES, "stream": True}))
    assert (answer.status, json.loads(answer.body)["error"]["param"]) == (400, "stream")
    assert not api.engine.submitted


def test_a_line_has_the_rights_of_its_principal() -> None:
    api = Api(says("no"))
    may_not = Principal(name="bob", controllers=(re.compile("regex"),), requests_per_minute=1)
    body = {"messages": _MESSAGES, "controller": "json_schema", "controller_arg": {}}
    answers = [_answer(api, Line("a", _CHAT, body), may_not) for _ in range(2)]
    assert [answer.status for answer in answers] == [403, 403]  # the rate of the key does not count lines


def test_cancelling_ends_the_sequence() -> None:
    api = Api(silent)

    async def main() -> None:
        line = Line("a", _CHAT, {"messages": _MESSAGES})
        answering = asyncio.ensure_future(InProcess(api.app, Principal(), _ready)(line))
        async with asyncio.timeout(30):
            while not api.engine.submitted:
                await asyncio.sleep(0.01)
        answering.cancel()
        await asyncio.wait([answering])

    asyncio.run(main())
    assert api.engine.aborted == [api.engine.submitted[0].stream]
    assert api.service.admission.num_admitted == 0
