"""The driver of a pipeline that is measured: a process that `aici bench cluster` starts in a machine.

Orders arrive as lines of JSON on stdin, answers leave on stdout. Times are those of the machine's monotonic clock,
which all namespaces share.
"""

import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aici_engine.engine import Engine
    from aici_engine.events import Event
    from aici_engine.request import ControllerCall

_TEXT = "It was a quiet morning in the village, and the road to the mill was white with frost. "
_TEXT_TOKENS = 20
_PATTERN = r"[a-zA-Z0-9 ,.]{4000}"
"""Never ends before the last token, so that all requests have the same number of tokens."""
_WATCH_S = 0.001
_FIRST_TOKENS = 8
_STALL_S = 120.0


@dataclass
class TimedAnswer:
    """The tokens of a request, each with the time of its arrival."""

    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


class MeasuredPipeline:
    def __init__(self, engine: "Engine", regex: "ControllerCall") -> None:
        self._engine = engine
        self._regex = regex
        self._numbers = itertools.count(1)

    def load(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run a batch, and return the times of its tokens and the time on the way between the stages."""
        before = self._hops()
        began = time.monotonic()
        answers = self._run(order)
        (hop_s, num), (hop_s_before, num_before) = self._hops(), before
        return {
            "began": began,
            "times": [answer.times for answer in answers],
            "hop_s": (hop_s - hop_s_before) / (num - num_before) if num > num_before else None,
        }

    def recover(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run a batch during which the caller breaks something. The caller hears when all requests decode, and when the
        loss was noticed."""
        plain = self._run(order | {"first": 1})
        answers = self._start(order | {"first": 1})
        while min(len(answer.tokens) for answer in answers) < _FIRST_TOKENS:
            time.sleep(_WATCH_S)
        _say({"decoding": time.monotonic()})
        deadline = time.monotonic() + _STALL_S
        while self._status()["state"] == "ready" and time.monotonic() < deadline:
            time.sleep(_WATCH_S)
        _say({"noticed": time.monotonic()})
        self._finish(answers)
        same = [answer.tokens for answer in plain] == [answer.tokens for answer in answers]
        return {"times": [answer.times for answer in answers], "same": same}

    def _run(self, order: dict[str, Any]) -> list[TimedAnswer]:
        answers = self._start(order)
        self._finish(answers)
        return answers

    def _start(self, order: dict[str, Any]) -> list[TimedAnswer]:
        """Submit a batch. Without `first`, prompts differ from all prompts before, so that nothing is in the cache."""
        from aici_engine.events import FinishEvent, TokenEvent
        from aici_engine.request import Request
        from aici_engine.sampling_params import SamplingParams

        self._ends: SimpleQueue[FinishEvent] = SimpleQueue()

        def sink(answer: TimedAnswer, event: "Event") -> None:
            if isinstance(event, TokenEvent):
                answer.times.append(time.monotonic())
                answer.tokens.append(int(event.token.token_id))
            elif isinstance(event, FinishEvent):
                self._ends.put(event)

        is_plain = order["kind"] == "plain"
        sampling = SamplingParams(temperature=0.0, max_tokens=order["num_tokens"], ignore_eos=is_plain)
        answers = [TimedAnswer() for _ in range(order["batch"])]
        numbers = itertools.count(order["first"]) if "first" in order else self._numbers
        for answer, number in zip(answers, numbers, strict=False):
            prompt = f"Chapter {number}. {_TEXT * (order['prompt_tokens'] // _TEXT_TOKENS)}"
            controller = None if is_plain else self._regex
            request = Request(prompt=prompt, sampling=sampling, controller=controller)
            self._engine.submit(request, sink=partial(sink, answer))
        return answers

    def _finish(self, answers: Sequence[TimedAnswer]) -> None:
        for _ in answers:
            if (error := self._ends.get().error) is not None:
                raise error

    def _status(self) -> dict[str, Any]:
        return dict(self._engine.pipeline_status() or {"state": "ready", "hop_s": None, "num_hop_steps": 0})

    def _hops(self) -> tuple[float, int]:
        """Return the time on the way of all steps that were alone in the pipeline, and their number."""
        status = self._status()
        return (status["hop_s"] or 0.0) * status["num_hop_steps"], status["num_hop_steps"]


def _say(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


def _orders() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def main() -> None:
    from aici_base.errors import AiciError
    from aici_controllers.catalog import guest_path
    from aici_engine.config import EngineConfig
    from aici_engine.engine import Engine
    from aici_engine.request import ControllerCall
    from aici_runtime.client import Runtime, RuntimeConfig

    orders = _orders()
    job = next(orders)
    model_dir = Path(job.pop("model_dir"))
    token_file = job.pop("token_file")
    job |= {"stages": tuple(job["stages"]), "cuts": tuple(job["cuts"])}
    try:
        with Runtime(RuntimeConfig(tokenizer=model_dir)) as runtime:
            runtime.wait_ready()
            regex = ControllerCall(runtime.mk_module(guest_path("regex").read_bytes()).module_id, _PATTERN)
            config = EngineConfig(model_dir=model_dir, token_file=token_file and Path(token_file), **job)
            with Engine(config, runtime=runtime) as engine:
                pipeline = MeasuredPipeline(engine, regex)
                _say({"ready": True})
                for order in orders:
                    _say(getattr(pipeline, order.pop("do"))(order))
    except AiciError as error:
        _say({"error": error.message})


if __name__ == "__main__":
    main()
