"""Our own engine as an engine of `aici bench engine`, through `Engine`.

Scheduling, sampling, text and events count. The cache is that of `aici serve`, with prefix reuse.
"""

import sys
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from aici_cli.bench.engines.protocol import Output, serve

if TYPE_CHECKING:
    from aici_engine.config import SamplingParams
    from aici_engine.engine import Engine as AiciEngine
    from aici_engine.events import Event
    from aici_engine.request import ControllerCall

PACKAGES = ("aici",)


class Engine:
    def __init__(self, job: dict[str, Any]) -> None:
        from aici_engine.config import EngineConfig
        from aici_engine.engine import Engine

        config = EngineConfig(
            model_dir=Path(job["model"]),
            dtype=job["form"],
            device=job["device"],
            num_threads=job["threads"],
            max_num_seqs=job["batch"],
            max_context=job["length"],
            speculate="off",
        )
        self._engine = Engine(config)

    def run(self, prompts: list[list[int]], num_new: int, out: Output) -> None:
        from aici_engine.config import SamplingParams

        decode(self._engine, prompts, SamplingParams(temperature=0.0, max_tokens=num_new, ignore_eos=True), out)


def decode(
    engine: "AiciEngine",
    prompts: list[list[int]],
    sampling: "SamplingParams",
    out: Output,
    controller: "ControllerCall | None" = None,
) -> None:
    """Run the prompts as one batch. The engine's thread adds the tokens to `out`. Raises the error of a request."""
    from aici_base.ids import TokenId
    from aici_engine.events import FinishEvent, TokenEvent
    from aici_engine.request import Request

    ends: SimpleQueue[FinishEvent] = SimpleQueue()

    def sink(number: int, event: "Event") -> None:
        if isinstance(event, TokenEvent):
            out.add(number, [int(event.token.token_id)])
        elif isinstance(event, FinishEvent):
            ends.put(event)

    for number, prompt in enumerate(prompts):
        request = Request(prompt=[TokenId(token) for token in prompt], sampling=sampling, controller=controller)
        engine.submit(request, sink=partial(sink, number))
    for _ in prompts:
        if (error := ends.get().error) is not None:
            raise error


if __name__ == "__main__":
    serve(sys.modules[__name__])
