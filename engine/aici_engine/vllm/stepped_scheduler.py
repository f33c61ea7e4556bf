"""vLLM's scheduler, which asks for masks. vLLM's workers get the class by its name, so the class is a module's own."""

from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.v1.core.sched.output import GrammarOutput
from vllm.v1.core.sched.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aici_engine.vllm.row_engine import Words


class Hooks:
    """What the scheduler calls. `keys`: our keys of rows by vLLM's names of requests. `num_preemptions`: counted by the
    scheduler."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}
        self.ask: Callable[[list[str]], None] = lambda _: None
        self.masks: Callable[[], Mapping[str, Words]] = dict
        self.num_preemptions = 0

    def forget(self, key: str) -> None:
        for name in [name for name, each in self.keys.items() if each == key]:
            del self.keys[name]


class SteppedScheduler(Scheduler):  # type: ignore[misc]
    """`hooks`: set before the first step."""

    hooks: Hooks

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        output = super().schedule(*args, **kwargs)
        # A part of a prompt samples no token.
        names = [name for name in output.num_scheduled_tokens if not self.requests[name].is_prefill_chunk]
        self.hooks.ask([self.hooks.keys[name] for name in names])
        return output

    def _preempt_request(self, *args: Any, **kwargs: Any) -> Any:
        self.hooks.num_preemptions += 1
        return super()._preempt_request(*args, **kwargs)

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        masks = self.hooks.masks()
        keys = {name: self.hooks.keys[name] for name in scheduler_output.num_scheduled_tokens}
        rows = {name: masks[key] for name, key in keys.items() if key in masks}
        return GrammarOutput(list(rows), np.stack(list(rows.values())), [0] * len(rows)) if rows else None
