"""The store of responses: what is kept is found by its owner alone, within the bounds, in several processes."""

import asyncio
import os
import random
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from aici_base.errors import NotFoundError, UnavailableError, UsageError
from aici_engine.server.config import KeptResponsesLimits
from aici_engine.server.service.response_store import KeptResponse, ResponseStore

Json = dict[str, Any]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def kept(number: int, *, previous: str | None = None, text: str = "") -> KeptResponse:
    body = {"id": f"resp_{number}", "status": "completed", "output": [{"id": f"out_{number}", "text": text}]}
    return KeptResponse(body, [{"id": f"in_{number}", "text": text}], previous)


def keep(store: ResponseStore, number: int, *, owner: str = "ann", **fields: Any) -> str:
    asyncio.run(store.keep(owner, kept(number, **fields)))
    return f"resp_{number}"


def is_kept(store: ResponseStore, response_id: str, *, owner: str = "ann") -> bool:
    try:
        return bool(asyncio.run(store.response(owner, response_id)))
    except NotFoundError:
        return False


def ids(items: list[Json]) -> list[str]:
    return [item["id"] for item in items]


def test_a_conversation() -> None:
    with ResponseStore() as store:
        first = keep(store, 1)
        second = keep(store, 2, previous=first)
        assert asyncio.run(store.response("ann", second)) == {**kept(2).body}
        assert ids(asyncio.run(store.conversation("ann", second))) == ["in_1", "out_1", "in_2", "out_2"]
        assert ids(asyncio.run(store.input_items("ann", second))) == ["in_1", "out_1", "in_2"]
        assert asyncio.run(store.item("ann", "out_1"))["id"] == "out_1"
        asyncio.run(store.delete("ann", first))
        assert is_kept(store, second)
        with pytest.raises(NotFoundError, match=f"{first}, which comes before {second}"):
            asyncio.run(store.conversation("ann", second))
        with pytest.raises(UsageError, match="out_1"):
            asyncio.run(store.item("ann", "out_1"))


def test_an_owner_sees_only_its_own() -> None:
    with ResponseStore() as store:
        response_id = keep(store, 1)
        other = keep(store, 2, owner="bob", previous=response_id)
        for call in (store.response, store.conversation, store.input_items, store.delete):
            with pytest.raises(NotFoundError):
                asyncio.run(call("bob", response_id))
        with pytest.raises(UsageError):
            asyncio.run(store.item("bob", "in_1"))
        with pytest.raises(NotFoundError):
            asyncio.run(store.conversation("bob", other))
        assert is_kept(store, response_id)


def test_what_is_used_lives() -> None:
    clock = Clock()
    with ResponseStore(None, KeptResponsesLimits(ttl_s=100), clock=clock) as store:
        first = keep(store, 1)
        second = keep(store, 2, previous=first)
        keep(store, 3)
        clock.now += 60
        asyncio.run(store.conversation("ann", second))
        clock.now += 60
        assert [is_kept(store, f"resp_{number}") for number in (1, 2, 3)] == [True, True, False]
        clock.now += 101
        assert not is_kept(store, first)


def test_bounds() -> None:
    limits = KeptResponsesLimits(max_owner_responses=3, max_owner_bytes=5000, max_bytes=7500)
    with ResponseStore(None, limits, clock=Clock()) as store:
        for number in range(4):
            keep(store, number)
        assert [is_kept(store, f"resp_{number}") for number in range(4)] == [False, True, True, True]
        is_kept(store, "resp_1")
        keep(store, 4)
        assert [is_kept(store, f"resp_{number}") for number in range(1, 5)] == [True, False, True, True]
        keep(store, 5, text="x" * 2000)  # twice: in the input and in the output
        assert [is_kept(store, f"resp_{number}") for number in (4, 5)] == [True, True]
        keep(store, 6, text="x" * 3000)
        assert not is_kept(store, "resp_6")  # larger than all that an owner has
        keep(store, 7, owner="bob", text="x" * 1900)
        assert is_kept(store, "resp_7", owner="bob")
        assert not is_kept(store, "resp_5")  # the largest owner's oldest went first


def test_as_a_model_says() -> None:
    """Random operations, against a dict of lists."""
    chance = random.Random(5)
    limits = KeptResponsesLimits(max_owner_responses=4)
    model: dict[str, list[int]] = {"ann": [], "bob": []}  # the least recently used first
    with ResponseStore(None, limits, clock=Clock()) as store:
        for number in range(200):
            owner = chance.choice(["ann", "bob"])
            keep(store, number, owner=owner)
            model[owner] = [*model[owner], number][-4:]
            asked = chance.randrange(number + 1)
            found = is_kept(store, f"resp_{asked}", owner=owner)
            assert found == (asked in model[owner])
            if found:
                model[owner].remove(asked)
                model[owner].append(asked)


def test_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "responses.db"
    program = (
        "import sys; sys.path.insert(0, sys.argv[3])\n"
        "from pathlib import Path\n"
        "from tests.engine.server.service.test_response_store import *\n"
        "with ResponseStore(Path(sys.argv[1])) as store:\n"
        "    for i in range(50): keep(store, int(sys.argv[2]) * 50 + i)\n"
    )
    root = str(Path(__file__).parents[4])
    runs = [subprocess.Popen([sys.executable, "-c", program, str(path), str(i), root]) for i in range(2)]
    assert [run.wait(60) for run in runs] == [0, 0]
    with ResponseStore(path) as store, ResponseStore(path) as again:
        assert all(is_kept(store, f"resp_{number}") for number in range(100))
        asyncio.run(again.delete("ann", "resp_7"))
        assert not is_kept(store, "resp_7")
    assert all(stat.S_IMODE(os.stat(file).st_mode) == 0o600 for file in path.parent.iterdir())


def test_threads_share_a_store() -> None:
    with ResponseStore() as store:
        threads = [threading.Thread(target=lambda i=i: [keep(store, i * 50 + j) for j in range(50)]) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(is_kept(store, f"resp_{number}") for number in range(200))


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, and long enough to be taken for the header of one" * 20)
    for path in (tmp_path / "text", tmp_path, Path("/proc/none/responses.db")):
        with pytest.raises(UnavailableError, match="cannot keep responses"):
            ResponseStore(path)


def test_limits_are_checked() -> None:
    with pytest.raises(UsageError, match="ttl_s"):
        KeptResponsesLimits(ttl_s=0)
