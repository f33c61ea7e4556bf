"""A model in two stages and a server, as a user starts them, says what one process says; and goes on after deaths."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support.model import default_model_dir
from tests.support.pipelines import Outcome, ask, client, request, together
from tests.support.server import Server, serving
from tests.support.stage_command import StageCommand

pytestmark = pytest.mark.e2e

CUTS = (7, 18)
REQUESTS = [
    *(request(kind, number) for number, kind in enumerate(("plain", "greedy", "regex", "schema", "votes"))),
    *(request(kind, number) for number, kind in enumerate(("schema", "plain", "regex"), 5)),
]


@dataclass
class StagedServer:
    stages: list[StageCommand]
    server: Server

    def status(self) -> dict[str, Any]:
        with urlopen(f"{self.server.url}/cluster", timeout=30) as answer:
            pipeline: dict[str, Any] = json.load(answer)["pipeline"]
        return pipeline


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StagedServer]:
    folder = tmp_path_factory.mktemp("stages")
    stages = [StageCommand(folder, number).start() for number in range(2)]
    addresses = ",".join(stage.address for stage in stages)
    flags = ["--stages", addresses, "--cuts", ",".join(map(str, CUTS)), "--token-file", str(folder / "token")]
    with serving(*flags, "--threads", "1") as server:
        yield StagedServer(stages, server)
    assert [stage.end(signal.SIGTERM) for stage in stages] == [0, 0]


@pytest.fixture(scope="module")
def expected(server: Server) -> list[Outcome]:
    """What one process says."""
    outcomes = asyncio.run(together(server.url, REQUESTS))
    assert [outcome.errors for outcome in outcomes] == [[]] * len(REQUESTS)
    return outcomes


def said(outcomes: list[Outcome]) -> list[object]:
    return [outcome.said for outcome in outcomes]


def test_texts_under_constraints_with_forks_and_seeds_are_those_of_one_process(
    staged: StagedServer, expected: list[Outcome]
) -> None:
    outcomes = asyncio.run(together(staged.server.url, REQUESTS))
    assert [outcome.errors for outcome in outcomes] == [[]] * len(REQUESTS)
    assert said(outcomes) == said(expected)
    assert [(stage["first"], stage["last"]) for stage in staged.status()["stages"]] == [(0, 7), (7, 18)]


def test_a_chat_is_that_of_one_process(staged: StagedServer, server: Server) -> None:
    assert chat(staged.server.url) == chat(server.url)


def test_embeddings_are_refused_by_name(staged: StagedServer) -> None:
    body = json.dumps({"input": "Tea"}).encode()
    asked = Request(f"{staged.server.url}/v1/embeddings", body, {"Content-Type": "application/json"})
    with pytest.raises(HTTPError) as refused:
        urlopen(asked, timeout=60)
    assert refused.value.code == 400
    assert "divided over stages" in json.load(refused.value)["error"]["message"]


def chat(url: str) -> str:
    body = {
        "model": default_model_dir().name,
        "messages": [{"role": "user", "content": "Name three colours."}],
        "max_tokens": 20,
        "temperature": 0.7,
        "seed": 3,
    }
    asked = Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(asked, timeout=60) as answer:
        text: str = json.load(answer)["choices"][0]["message"]["content"]
    return text


def test_streams_go_on_after_a_killed_stage(staged: StagedServer, expected: list[Outcome]) -> None:
    other = staged.stages[0].process.pid
    outcomes = asyncio.run(during_all(staged, lambda: restart(staged.stages[1])))
    assert [outcome.errors for outcome in outcomes] == [[]] * len(REQUESTS)
    assert said(outcomes) == said(expected)
    status = staged.status()
    assert status["interruptions"] == 1
    assert status["stages"][0]["pid"] == other


async def during_all(staged: StagedServer, act: Any) -> list[Outcome]:
    """Run all requests; when all have begun to answer, call `act`."""
    outcomes = [Outcome() for _ in REQUESTS]
    async with client(staged.server.url) as http:
        running = [
            asyncio.create_task(ask(http, body, into=outcome)) for body, outcome in zip(REQUESTS, outcomes, strict=True)
        ]
        while not all(len(outcome.times) > 1 or outcome.done for outcome in outcomes):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(act)
        await asyncio.gather(*running)
    return outcomes


def restart(stage: StageCommand) -> None:
    stage.end(signal.SIGKILL)
    stage.start()


def test_a_new_driver_finds_the_weights_where_they_were(staged: StagedServer, expected: list[Outcome]) -> None:
    pids = [stage.process.pid for stage in staged.stages]
    before = [stage.num_read() for stage in staged.stages]
    os.kill(engine_pid(staged.server), signal.SIGKILL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # 503 while the engine starts
            if staged.status()["epoch"]:
                break
        time.sleep(0.1)
    [outcome] = asyncio.run(together(staged.server.url, REQUESTS[:1]))
    assert outcome.said == expected[0].said
    assert [stage["pid"] for stage in staged.status()["stages"]] == pids
    read = [stage.num_read() - old for stage, old in zip(staged.stages, before, strict=True)]
    assert max(read) < 100_000


def engine_pid(server: Server) -> int:
    """The engine process is the API process's child with that name."""
    tasks = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    children = [int(pid) for task in tasks for pid in task.read_text().split()]
    return next(pid for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "aici-engine")
