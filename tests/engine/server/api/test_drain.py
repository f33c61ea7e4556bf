"""`POST /admin/drain`: for administrators, and new requests are refused from then on."""

import asyncio
from pathlib import Path

from tests.engine.server.service.test_running_requests import asking, client, hangs
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over


def test_an_administrator_drains_the_server(tmp_path: Path) -> None:
    async def main() -> None:
        service = service_over(FakeEngine([hangs]))
        async with client(service, tmp_path) as http, asking(http, **{"api-key": "ann"}):
            refused = await http.post("/admin/drain", headers={"api-key": "ann"})
            assert refused.status_code == 403
            assert not service.admission.draining
            answer = await http.post("/admin/drain", headers={"api-key": "root"})
            assert answer.json() == {"draining": True, "sequences": 1}
            assert service.admission.draining
            late = await http.post("/v1/completions", json={"model": "it", "prompt": "a"}, headers={"api-key": "ann"})
            assert late.status_code == 503

    asyncio.run(main())
