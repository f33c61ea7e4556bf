"""How much a running batch delays interactive requests, streams of 24 tokens: medians with and without, in turn.

python -m tests.e2e.batch_delay --rounds 6
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import openai

from tests.support.batch_lines import chat_line, jsonl
from tests.support.processes import wait_until
from tests.support.server import Server, serving

_PATIENCE_S = 120.0


Times = list[tuple[float, float]]
"""Of each request: seconds to the first token, and seconds from there to the end."""


def measure(server: Server, client: openai.OpenAI, *, rounds: int, requests: int) -> tuple[Times, Times]:
    """Return the times of interactive requests without and with a batch. Every second round has a batch."""
    alone: Times = []
    beside: Times = []
    lines = [chat_line(f"r{number}", f"Tell the story of number {number}.", max_tokens=200) for number in range(500)]
    for number in range(2 * rounds):
        batch_id = ""
        if number % 2:
            file = client.files.create(file=("in.jsonl", jsonl(*lines)), purpose="batch")
            batch_id = client.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            ).id
            assert wait_until(lambda: server.stats()["active_requests"] > 4, _PATIENCE_S)
        for _ in range(requests):
            (beside if batch_id else alone).append(_request(client))
        if batch_id:
            client.batches.cancel(batch_id)
            assert wait_until(lambda: client.batches.retrieve(batch_id).status == "cancelled", _PATIENCE_S)  # noqa: B023
    return alone, beside


def _request(client: openai.OpenAI) -> tuple[float, float]:
    start = time.monotonic()
    stream = client.chat.completions.create(
        model="default",
        max_tokens=24,
        stream=True,
        messages=[{"role": "user", "content": f"Hello at {time.time_ns()}"}],
        extra_body={"min_tokens": 24},
    )
    first = next(time.monotonic() for chunk in stream if chunk.choices and chunk.choices[0].delta.content)
    for _ in stream:
        pass
    return first - start, time.monotonic() - first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--requests", type=int, default=5)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="batch-delay-") as folder,
        serving("--batches-file", str(Path(folder) / "batches.db")) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
    ):
        alone, beside = measure(server, client, rounds=given.rounds, requests=given.requests)
    for name, part in (("to the first token", 0), ("from there to the end", 1)):
        one, two = (statistics.median(times[part] for times in each) for each in (alone, beside))
        print(f"{name}: {one:.3f} s alone, {two:.3f} s beside a batch, ratio {two / one:.2f}")


if __name__ == "__main__":
    main()
