"""The middleware in front of the routes: key, rate, size and time limits."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2 as httpx
import pytest
from fastapi import Depends, FastAPI, Request, WebSocket
from starlette.testclient import TestClient, WebSocketDenialResponse

from aici_engine.server.api.app import create_app
from aici_engine.server.config import RequestLimits
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.gateway.caller import caller
from aici_engine.server.gateway.http_server import MAX_HEAD_BYTES, HttpProtocol
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Generation
from tests.engine.server.gateway.test_api_keys import ALICE, key_file
from tests.support.fake_engine import FakeEngine, silent
from tests.support.fake_service import service_over
from tests.support.http import exchange, listening


def make_app(*, keys: Keys | None = None, limits: RequestLimits | None = None, cors: tuple[str, ...] = ()) -> FastAPI:
    """With routes for the tests: /echo gives the body back, /slow waits for ever, /stream for its sequence."""
    engine = FakeEngine([silent], calls={"stats": {}})
    service = service_over(engine, limits=limits)
    app = create_app(service, keys=keys, cors_origins=cors)

    @app.post("/echo")
    async def echo(request: Request, principal: Principal = Depends(caller)) -> dict[str, object]:  # noqa: B008
        return {"who": principal.name, "size": len(await request.body())}

    @app.post("/slow")
    async def slow() -> None:
        await asyncio.Event().wait()

    @app.post("/sequence")
    async def sequence(principal: Principal = Depends(caller)) -> None:  # noqa: B008
        async with service.open(principal, [Generation(prompt=[1])]) as [stream]:
            async for _ in stream:
                pass
        assert stream.finish is not None
        assert stream.finish.failure is not None
        raise stream.finish.failure.error()

    @app.websocket("/socket")
    async def socket(websocket: WebSocket, principal: Principal = Depends(caller)) -> None:  # noqa: B008
        await websocket.accept()
        await websocket.send_text(principal.name)
        await websocket.close()

    return app


def client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://it")


def test_a_key_gives_its_rights(tmp_path: Path) -> None:
    app = make_app(keys=Keys(key_file(tmp_path)))

    async def main() -> None:
        async with client(app) as http:
            for path in ("/health", "/ready"):
                assert (await http.get(path)).status_code == 200
            for path in ("/stats", "/nothing", "/openapi.json"):
                answer = await http.get(path)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
                assert answer.json()["error"]["type"] == "authentication_error"
            assert (await http.post("/v1/messages")).json()["error"]["type"] == "authentication_error"
            assert (await http.post("/v1/run")).json()["code"] == "authentication_error"
            alice = {"authorization": f"Bearer {ALICE}"}
            assert (await http.get("/stats", headers=alice)).status_code == 200
            assert (await http.get("/nothing", headers=alice)).status_code == 404
            assert (await http.post("/echo", headers=alice)).json() == {"who": "alice", "size": 0}

    asyncio.run(main())


def test_websockets_need_a_key_too(tmp_path: Path) -> None:
    test = TestClient(make_app(keys=Keys(key_file(tmp_path))))
    with test.websocket_connect(f"/socket?api_key={ALICE}") as socket:
        assert socket.receive_text() == "alice"
    for path in ("/socket", "/", "/socket?api_key=wrong"):
        with pytest.raises(WebSocketDenialResponse) as denied, test.websocket_connect(path):
            pass
        assert denied.value.status_code == 401


def test_a_refused_request_says_when_to_retry(tmp_path: Path) -> None:
    app = make_app(keys=Keys(key_file(tmp_path)))

    async def main() -> None:
        async with client(app) as http:
            bob = {"api-key": "sk-bob"}
            statuses = [(await http.post("/echo", headers=bob)).status_code for _ in range(2)]
            assert statuses == [200, 200]
            refused = await http.post("/echo", headers=bob)
            assert refused.status_code == 429
            assert 1 <= int(refused.headers["retry-after"]) <= 30
            assert (await http.get("/stats", headers=bob)).status_code == 200
            assert (await http.post("/echo", headers={"api-key": ALICE})).status_code == 200

    asyncio.run(main())


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_refused(chunked: bool) -> None:
    app = make_app(limits=RequestLimits(max_body_bytes=1000))

    async def pieces(num_bytes: int) -> AsyncIterator[bytes]:
        for _ in range(num_bytes // 100):
            yield b"x" * 100

    async def main() -> None:
        async with client(app) as http:
            for size, status in ((1000, 200), (1100, 413)):
                answer = await http.post("/echo", content=pieces(size) if chunked else b"x" * size)
                assert answer.status_code == status, size

    asyncio.run(main())


def test_a_connection_goes_on_after_a_refused_body() -> None:
    app = make_app(limits=RequestLimits(max_body_bytes=1000))
    large = b"POST /echo HTTP/1.1\r\nHost: it\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
    chunk = (
        b"POST /echo HTTP/1.1\r\nHost: it\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" + b"x" * 2048 + b"\r\n0\r\n\r\n"
    )
    small = b"POST /echo HTTP/1.1\r\nHost: it\r\nContent-Length: 2\r\n\r\n{}"

    async def main() -> None:
        async with listening(app) as port:
            for refused in (large, chunk):
                said = await exchange(port, refused, small)
                assert said.startswith(b"HTTP/1.1 413 ")
                assert said.endswith(b'{"who":"localhost","size":2}')

    asyncio.run(main())


def test_a_body_that_does_not_arrive_times_out() -> None:
    app = make_app(limits=RequestLimits(body_timeout_s=0.05))

    async def main() -> None:
        async with listening(app) as port:
            said = await exchange(port, b"POST /echo HTTP/1.1\r\nHost: it\r\nContent-Length: 2\r\n\r\n{")
            assert said.startswith(b"HTTP/1.1 408 ")
            assert b"connection: close" in said.lower()

    asyncio.run(main())


def test_headers_have_bounds() -> None:
    class Hasty(HttpProtocol):
        head_timeout_s = 0.05

    long = b"GET /health HTTP/1.1\r\nHost: it\r\nX-Long: "
    fine = b"GET /health HTTP/1.1\r\nHost: it\r\nX-Long: " + b"x" * 40_000 + b"\r\n\r\n"

    async def main() -> None:
        async with listening(make_app()) as port:
            assert (await exchange(port, long + b"x" * MAX_HEAD_BYTES)).startswith(b"HTTP/1.1 431 ")
            assert (await exchange(port, fine, fine)).count(b"HTTP/1.1 200 ") == 2
        async with listening(make_app(), Hasty) as port:
            for slow in (b"", b"GET /hea", long):
                assert await exchange(port, slow) == b""

    asyncio.run(main())


def test_a_slow_sequence_times_out() -> None:
    app = make_app(limits=RequestLimits(request_timeout_s=0.05))

    async def main() -> None:
        async with client(app) as http:
            answer = await http.post("/sequence")
            assert answer.status_code == 408
            assert "longer than 0.05 s" in answer.json()["error"]["message"]

    asyncio.run(main())


def test_a_slow_request_times_out() -> None:
    async def main() -> None:
        async with client(make_app(limits=RequestLimits(request_timeout_s=0.02, grace_s=0.02))) as http:
            answer = await http.post("/slow")
            assert answer.status_code == 408
            assert answer.headers["connection"] == "close"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /health HTTP/1.1\r\nHost: it\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (b"GET /health HTTP/1.1\r\nHost: it\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: it\r\nContent-Length: 1e3\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHo st: it\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", 400),
        (b"GET /health HTTP/1.1\r\nHost: it\r\nAuthorization: a\r\nAuthorization: b\r\nX-Odd: \xff\r\n\r\n", 200),
        (b"GET /health%00 HTTP/1.1\r\nHost: it\r\n\r\n", 404),
        (b"GET /%ff%fe HTTP/1.1\r\nHost: it\r\n\r\n", 404),
        (b"POST /echo HTTP/1.1\r\nHost: it\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415),
        (b"DELETE /health HTTP/1.1\r\nHost: it\r\n\r\n", 405),
    ],
)
def test_odd_requests_get_proper_statuses(request_head: bytes, status: int) -> None:
    async def main() -> None:
        async with listening(make_app()) as port:
            assert (await exchange(port, request_head)).startswith(f"HTTP/1.1 {status} ".encode())
            assert (await exchange(port, b"GET /health HTTP/1.1\r\nHost: it\r\n\r\n")).startswith(b"HTTP/1.1 200 ")

    asyncio.run(main())


def test_other_pages_may_read_only_if_asked() -> None:
    preflight = {"origin": "http://page", "access-control-request-method": "POST"}

    async def main() -> None:
        async with client(make_app()) as http:
            assert "access-control-allow-origin" not in (await http.get("/health", headers=preflight)).headers
        async with client(make_app(cors=("http://page",))) as http:
            answer = await http.options("/echo", headers=preflight)
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == "http://page"
            other = await http.get("/health", headers={"origin": "http://other"})
            assert "access-control-allow-origin" not in other.headers

    asyncio.run(main())
