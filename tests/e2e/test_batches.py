"""`/v1/batches` of `aici serve` with the real model, by the official client."""

import contextlib
from pathlib import Path

import openai
import pytest

from tests.support.batch_lines import chat_line, jsonl, results
from tests.support.processes import wait_until
from tests.support.server import serving

pytestmark = pytest.mark.e2e

_PATIENCE_S = 250.0
_NUM_LINES = 60


def test_a_batch_goes_on_after_the_server_is_killed(tmp_path: Path) -> None:
    file = ("--batches-file", str(tmp_path / "batches.db"))
    lines = [chat_line(f"r{number}", f"Say {number}.", max_tokens=6) for number in range(_NUM_LINES)]
    with serving(*file) as server, _client(server.url) as client:
        uploaded = client.files.create(file=("in.jsonl", jsonl(*lines)), purpose="batch")
        batch = client.batches.create(
            input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h"
        )

        def has_begun() -> bool:
            counts = client.batches.retrieve(batch.id).request_counts
            return counts is not None and counts.completed > 0

        assert wait_until(has_begun, _PATIENCE_S)
        server.process.kill()
        server.process.wait()
    with serving(*file) as server, _client(server.url) as client:
        assert wait_until(lambda: client.batches.retrieve(batch.id).status == "completed", _PATIENCE_S)
        done = client.batches.retrieve(batch.id)
        assert done.request_counts is not None
        assert done.request_counts.completed == _NUM_LINES
        assert done.output_file_id is not None
        assert list(results(client.files.content(done.output_file_id).content)) == [
            f"r{number}" for number in range(_NUM_LINES)
        ]


def _client(url: str) -> contextlib.AbstractContextManager[openai.OpenAI]:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none")
