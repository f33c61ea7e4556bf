"""The response of every protocol when the server ends a sequence: after a timeout, or after the engine died."""

import asyncio
import json
from collections.abc import Iterable

import httpx2 as httpx
import pytest

from aici_base.errors import UnavailableError
from aici_engine.server.api.app import create_app
from aici_engine.server.config import RequestLimits
from aici_engine.server.link import wire
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over

MESSAGES = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, object]] = {
    "/v1/completions": {"model": "it", "prompt": "Once"},
    "/v1/chat/completions": {"model": "it", "messages": MESSAGES},
    "/v1/messages": {"model": "it", "max_tokens": 8, "messages": MESSAGES},
}
EMBEDDINGS: dict[str, dict[str, object]] = {"/v1/embeddings": {"model": "it", "input": ["Once", "Twice"]}}
RUN = {"controller": "none", "controller_arg": "Once"}


def hangs(submit: wire.Submit) -> Iterable[wire.StreamOut]:
    """After a token."""
    yield wire.TokenOut(submit.stream, 1, b"x", "x", False, None, [])


def ask(path: str, body: dict[str, object], *, lost: bool) -> tuple[int, str]:
    """The answer when the sequence takes too long, or when the engine is lost."""
    engine = FakeEngine([hangs], info=wire.EngineInfo(49152, 2048, 4, states_size=8))
    limits = RequestLimits(request_timeout_s=600 if lost else 0.05)
    service = service_over(engine, limits=limits)

    async def main() -> tuple[int, str]:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://it") as http:
            asking = asyncio.create_task(http.post(path, json=body))
            while lost and not engine.submitted:
                await asyncio.sleep(0)
            if lost:
                engine.client.lost(UnavailableError("the engine has died"))
            answer = await asking
            assert service.admission.num_admitted == 0
            return answer.status_code, answer.text

    return asyncio.run(main())


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("path", BODIES | EMBEDDINGS)
def test_an_answer_that_is_not_streamed_is_an_error(path: str, lost: bool) -> None:
    status, text = ask(path, (BODIES | EMBEDDINGS)[path], lost=lost)
    assert status == (503 if lost else 408)
    assert ("has died" if lost else "longer than 0.05 s") in json.loads(text)["error"]["message"]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("path", [*BODIES, "/v1/run"])
def test_a_stream_that_has_begun_ends_with_an_error(path: str, lost: bool) -> None:
    body = RUN if path == "/v1/run" else BODIES[path] | {"stream": True}
    status, text = ask(path, body, lost=lost)
    said = "has died" if lost else "longer than 0.05 s"
    if status == 200:
        [told] = [event for event in text.split("\n\n") if said in event]
        assert "error" in told
        assert "x" in text[: text.index(told)]
    else:
        # The engine was lost before the first event, so the response may have an error status.
        assert lost
        assert status == 503
        assert said in text
