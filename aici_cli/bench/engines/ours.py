"""The engine of this package as one of the contestants of `aici bench engine`: what it does for a caller of `Engine`.

Scheduling, sampling, text and events count; the same cache as under `aici serve`, prefix reuse included.
"""

from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from aici_cli.bench.engines.peers import Prompts, Run, serve

if TYPE_CHECKING:
    from aici_engine.config import SamplingParams
    from aici_engine.engine import Engine
    from aici_engine.events import Event
    from aici_engine.request import ControllerCall


class Ours:
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
        )
        self._engine = Engine(config)

    def run(self, prompts: Prompts, num_new: int) -> Run:
        from aici_engine.config import SamplingParams

        return decode(self._engine, prompts, SamplingParams(temperature=0.0, max_tokens=num_new, ignore_eos=True))

    @staticmethod
    def prepare(job: dict[str, Any]) -> None:
        pass

    @staticmethod
    def version() -> str:
        return version("aici")


def decode(
    engine: "Engine", prompts: Prompts, sampling: "SamplingParams", controller: "ControllerCall | None" = None
) -> Run:
    from aici_base.ids import TokenId
    from aici_engine.events import FinishEvent, TokenEvent
    from aici_engine.request import Request

    seen: SimpleQueue[tuple[int, float, Event]] = SimpleQueue()
    done = Run(len(prompts))
    for number, prompt in enumerate(prompts):
        request = Request(prompt=[TokenId(token) for token in prompt], sampling=sampling, controller=controller)
        engine.submit(request, sink=lambda event, number=number: seen.put((number, done.now(), event)))  # type: ignore[misc]
    left = len(prompts)
    while left:
        number, at, event = seen.get()
        if isinstance(event, TokenEvent):
            done.add(number, [int(event.token.token_id)], at)
        elif isinstance(event, FinishEvent):
            left -= 1
            if event.error is not None:
                raise event.error
    return done


if __name__ == "__main__":
    serve(Ours)
