"""`aici cluster status` against a server."""

import asyncio
import json
import sys
from collections.abc import Callable

from aici_engine.server.api.app import create_app
from tests.support.cli import AICI
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over
from tests.support.http import listening
from tests.support.pipeline_status import pipeline_status


def status(engine: FakeEngine, *flags: str, on_line: Callable[[int], bool] | None = None) -> tuple[int, list[str]]:
    """Run the command; return exit code and lines. `on_line` is called after each; True stops the server."""

    async def main() -> tuple[int, list[str]]:
        service = service_over(engine)
        async with listening(create_app(service)) as port:
            command = [*AICI, "cluster", "status", "--server", f"http://127.0.0.1:{port}", *flags]
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=sys.stderr.fileno()
            )
            assert process.stdout is not None
            seen = []
            async for line in process.stdout:
                seen.append(line.decode().rstrip("\n"))
                if on_line is not None and on_line(len(seen)):
                    service.admission.drain_begun.set()
            return await process.wait(), seen

    return asyncio.run(main())


def test_the_stages_are_a_table() -> None:
    code, lines = status(FakeEngine(calls={"cluster": pipeline_status()}))
    assert code == 0
    assert lines[0] == "ready, epoch 3, 800 pages of 16 tokens, 500 steps, 2 interruptions, 0.70 ms a step on the way"
    assert [line.split() for line in lines[2:]] == [
        ["stage", "node", "layers", "weights", "cache", "computed", "waited"],
        ["0", "far", "0-16", "60", "MB", "160", "MB", "3.00", "ms/step", "1.00", "ms/step"],
        ["1", "driver", "17-29", "70", "MB", "120", "MB", "4.00", "ms/step"],
    ]


def test_spares_and_nodes_that_are_away_are_listed() -> None:
    facts = {"trouble": "", "away_s": 0, "budget_bytes": 700_000_000, "first": None}
    nodes = [
        {"name": "far", "state": "ready", **facts, "first": 0},
        {"name": "spare", "state": "ready", **facts},
        {"name": "lost", "state": "away", **facts, "away_s": 12, "first": 3, "trouble": "no answer"},
    ]
    code, lines = status(FakeEngine(calls={"cluster": {**pipeline_status(), "nodes": nodes}}))
    assert code == 0
    assert lines[-2:] == ["node spare: ready, spare of 700 MB", "node lost: away, for 12 s: no answer"]


def test_an_interrupted_pipeline_has_no_table() -> None:
    interrupted = pipeline_status(state="interrupted", trouble="stage 0 is gone", stages=[], driver=None, epoch=None)
    code, [line] = status(FakeEngine(calls={"cluster": interrupted}))
    assert code == 0
    assert line.startswith("interrupted: stage 0 is gone, ")


def test_one_process_says_so() -> None:
    assert status(FakeEngine()) == (0, ["no pipeline: one process runs the whole model"])


def test_json_is_the_servers() -> None:
    code, lines = status(FakeEngine(calls={"cluster": pipeline_status()}), "--json")
    assert (code, json.loads("\n".join(lines))["pipeline"]) == (0, pipeline_status())


def test_watch_shows_changes_until_the_server_stops() -> None:
    engine = FakeEngine(calls={"cluster": pipeline_status(state="interrupted", trouble="stage 0 is gone")})

    def change(count: int) -> bool:
        engine.calls["cluster"] = pipeline_status(epoch=4)
        return count == 2

    code, lines = status(engine, "--watch", "--json", on_line=change)
    assert [json.loads(line)["pipeline"]["state"] for line in lines] == ["interrupted", "ready"]
    assert code == 0
