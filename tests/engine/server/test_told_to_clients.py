"""What clients read about failures: no file of the server, and when to try again."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from aici_base.errors import AiciError, QuotaError, RateLimitError, UnavailableError, classes
from aici_controllers.store import Store
from aici_engine.server.api.app import create_app
from aici_engine.server.errors import HTTP_ERRORS, status_of, text_of
from aici_engine.server.gateway.error_responses import ANTHROPIC, OPENAI, REST, ErrorShape, response
from aici_engine.server.link.wire import Failure
from aici_engine.server.protocols.lmtp.messages import NULL, ErrorItem
from aici_engine.server.service.models import Models
from tests.support.fake_engine import FakeEngine, fails
from tests.support.fake_service import service_over

_SHAPES = {"openai": OPENAI, "anthropic": ANTHROPIC, "rest": REST}
_FAILURES = [kind for kind in HTTP_ERRORS if status_of(kind("a")) >= 500]
_BUSY = [kind for kind in HTTP_ERRORS if status_of(kind("a")) in (429, 503)]


@pytest.mark.parametrize("kind", _FAILURES)
@pytest.mark.parametrize("shape", _SHAPES.values(), ids=_SHAPES)
@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("cannot write /srv/telling-folder/modules/a.wasm: No space left on device", "AICI_STORE_DIR names another"),
        ("cannot write '/srv/telling-folder/a'", ""),
        ("cannot write ~/telling-folder/a", ""),
        ("the disk is full", "free /srv/telling-folder/modules"),
        ("the disk is full", "AICI_STORE_DIR names another folder"),
    ],
)
def test_no_file_of_the_server_is_told(
    kind: type[AiciError], shape: ErrorShape, message: str, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = kind(message, hint=hint)
    told = bytes(response(shape, error).body).decode()
    item = ErrorItem.of(NULL, error)
    for text in (told, item.error, text_of(error)):
        assert "telling-folder" not in text
        assert "AICI_STORE_DIR" not in text
        assert "the server's log has the reason" in text
    assert message in caplog.text
    assert hint in caplog.text


def test_other_texts_stay() -> None:
    for message in ("read https://example.org/a/b for more", "use /v1/completions", "5/6 of the pages", "and/or"):
        assert message in text_of(UnavailableError(message))
    assert "/v1/nothing/here" in text_of(HTTP_CLASS("nothing is served at /v1/nothing/here"))


HTTP_CLASS = next(kind for kind in HTTP_ERRORS if kind.__name__ == "NoRouteError")


@pytest.mark.parametrize("kind", _BUSY)
@pytest.mark.parametrize("shape", _SHAPES.values(), ids=_SHAPES)
def test_who_may_try_again_reads_when(kind: type[AiciError], shape: ErrorShape) -> None:
    assert 1 <= int(response(shape, kind("a")).headers["retry-after"]) <= 60
    assert ErrorItem.of(NULL, kind("a")).retry_after_s != 0


def test_busy_classes_are_known() -> None:
    assert {RateLimitError, QuotaError, UnavailableError} <= set(_BUSY)
    assert set(_FAILURES) <= set(classes())


def test_a_store_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "telling-folder").write_text("a file, where a folder should be")
    service = service_over(FakeEngine())
    service.store = Store(tmp_path / "telling-folder" / "modules")
    http = TestClient(create_app(Models.of(service)))
    wasm = b"\0asm\1\0\0\0"
    for answer in (
        http.post("/v1/controllers", content=wasm, headers={"Content-Type": "application/wasm"}),
        http.post("/v1/controllers/tags", json={"module_id": "0" * 64, "tags": ["a"]}),
        http.get("/v1/controllers"),
        http.get("/v1/controllers/tags"),
        http.get("/v1/controllers/a"),
        http.delete("/v1/controllers/tags/a"),
        http.delete(f"/v1/controllers/{'0' * 64}"),
    ):
        assert "telling-folder" not in answer.text
        assert "AICI_" not in answer.text
        assert answer.status_code < 500 or answer.status_code == 503


def test_a_failure_of_a_stream_names_no_file() -> None:
    failure = Failure("unavailable", "cannot write /srv/telling-folder/modules/a.wasm")
    http = TestClient(create_app(service_over(FakeEngine([fails(failure, "a")]))))
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3}
    for path, body in {
        "/v1/chat/completions": chat,
        "/v1/completions": {"prompt": "a"},
        "/v1/messages": chat | {"model": "it"},
        "/v1/responses": {"input": "a"},
        "/v1/run": {"controller": "none", "controller_arg": "a"},
    }.items():
        for stream in ({"stream": True}, {}):
            answer = http.post(path, json=body | ({} if path == "/v1/run" else stream))
            assert "telling-folder" not in answer.text, path
            assert "its operator may read" in answer.text, path
