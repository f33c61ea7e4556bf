"""32 forks of a script in one batch: the same texts as 32 separate runs, for a fraction of the pages."""

from collections.abc import Sequence

import pytest

from aici_controllers.catalog import guest_path
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import FinishEvent, ForkEvent
from aici_engine.request import ControllerCall, Request
from aici_runtime.client import Runtime, RuntimeConfig
from tests.support.model import default_model_dir

pytestmark = pytest.mark.e2e

NUM_FORKS = 32
NUM_PAGES = 1024
SEED = 100
PROMPT = (
    "Notes of a long journey. "
    + " ".join(f"On day {day} we saw the sea and went on." for day in range(1, 12))
    + " Then we"
)
GENERATE = "await gen({ maxTokens: 10 });"


class _Watched:
    """An engine, and the most pages in use after any step."""

    def __init__(self, runtime: Runtime) -> None:
        config = EngineConfig(
            model_dir=default_model_dir(), num_pages=NUM_PAGES, max_num_seqs=NUM_FORKS, prefix_cache=False
        )
        self.peak = 0
        self.engine = Engine(config, runtime=runtime, on_step=self._look)

    def _look(self) -> None:
        self.peak = max(self.peak, round(self.engine.get_stats()["cache_usage"] * NUM_PAGES))

    def run(self, module_id: str, script: str, seeds: Sequence[int]) -> list[dict[int, str]]:
        """Return, for every seed, the texts of the forks."""
        self.peak = 0
        call = ControllerCall(module_id, script)
        sampling = [SamplingParams(temperature=1.5, top_k=0, seed=seed) for seed in seeds]
        handles = [self.engine.submit(Request(prompt=PROMPT, sampling=each, controller=call)) for each in sampling]
        texts: list[dict[int, str]] = [{} for _ in handles]
        for handle, into in zip(handles, texts, strict=True):
            for event in handle.events():
                fork, inner = (event.fork, event.event) if isinstance(event, ForkEvent) else (0, event)
                if isinstance(inner, FinishEvent):
                    assert inner.error is None
                    into[fork] = inner.text
        return texts


def test_forks_are_runs_that_share_the_prompt() -> None:
    config = RuntimeConfig(tokenizer=default_model_dir(), max_forks=NUM_FORKS)
    with Runtime(config) as runtime:
        runtime.wait_ready()
        module_id = runtime.mk_module(guest_path("jsctrl").read_bytes()).module_id
        watched = _Watched(runtime)
        with watched.engine:
            [forks] = watched.run(module_id, f"await fork({NUM_FORKS}); {GENERATE}", [SEED])
            forks_peak = watched.peak
            runs = watched.run(module_id, GENERATE, range(SEED, SEED + NUM_FORKS))
            watched.run(module_id, GENERATE, [SEED])
            run_peak = watched.peak
    assert [forks[fork] for fork in range(NUM_FORKS)] == [run[0] for run in runs]
    assert len(set(forks.values())) > NUM_FORKS // 2
    # The number of concurrent runs depends on how fast runs start and end.
    assert forks_peak * 3 < run_peak * NUM_FORKS
    print(f"pages at most: {forks_peak} of {NUM_FORKS} forks, {run_peak} of a run")
