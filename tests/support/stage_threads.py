"""Stages in threads of this process, with real sockets, real encryption and the real loader."""

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from aici_base.errors import AiciError
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.driver import make_driver
from aici_engine.cluster.frames import StageFacts, StageSpeed
from aici_engine.cluster.link import LinkGroup
from aici_engine.cluster.link_server import KeyPair
from aici_engine.cluster.pipeline import PipelineExecutor
from aici_engine.cluster.stage import WeightsLoader
from aici_engine.cluster.stage_loader import StageLoader
from aici_engine.cluster.stage_process import StageProcess
from aici_engine.cluster.token import ClusterToken
from aici_engine.config import EngineConfig
from aici_engine.executor import Executor
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.tensor_source import FolderSource
from aici_engine.model.tensor_store import TensorStore
from aici_engine.native.stage_source import describe

ANY_PORT: Final = StageAddress("127.0.0.1", 0)


@contextmanager
def stage_thread(
    token: ClusterToken,
    loader: WeightsLoader,
    *,
    listen: StageAddress = ANY_PORT,
    keys: KeyPair | None = None,
    memory_bytes: int = 4 << 30,
    measure: Callable[[], StageSpeed] | None = None,
) -> Iterator[StageAddress]:
    """Run a stage in a thread. Leaving the context closes its port, as if the process had ended."""
    made: Future[StageProcess] = Future()

    def run() -> None:
        links = LinkGroup(token, role="stage", name="a stage")
        try:
            facts = StageFacts(1, "", "cpu", 1, memory_bytes, 0)
            stage = StageProcess(links, listen, loader, facts, keys=keys, measure=measure)
        except AiciError as error:
            links.close()
            made.set_exception(error)
            return
        with stage:
            made.set_result(stage)
            stage.run()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    stage = made.result()
    try:
        yield stage.address
    finally:
        stage.stop()
        thread.join()


def even_cuts(num_layers: int, num_stages: int) -> tuple[int, ...]:
    """Return the first layer after every stage, for parts of the same size."""
    return tuple(math.ceil(num_layers * (i + 1) / (num_stages + 1)) for i in range(num_stages))


class StagedEngines:
    """Replaces the executors of engines: their models run in `num_stages` stages, with `depth` steps in flight.

    `num_staged`, `num_local`: engines so far; a model that cannot be divided runs in one process.
    """

    def __init__(self, folder: Path, *, num_stages: int, depth: int, local: Callable[..., Executor]) -> None:
        self.num_staged = self.num_local = 0
        self._folder = folder
        self._token_file = folder / "token"
        self._token = ClusterToken.read_or_create(self._token_file)[0]
        self._num_stages = num_stages
        self._depth = depth
        self._local = local

    def make_executor(self, config: EngineConfig, compute: ComputeDevice) -> Executor:
        with ExitStack() as stack:
            addresses = []
            for _ in range(0 if config.stages else self._num_stages):
                loader = StageLoader([config.model_dir], store=TensorStore(self._folder / "tensors"))
                addresses.append(stack.enter_context(stage_thread(self._token, loader)))
            try:
                staged = replace(
                    config,
                    stages=tuple(map(str, addresses)),
                    cuts=even_cuts(describe(FolderSource(config.model_dir)).num_layers, len(addresses)),
                    token_file=self._token_file,
                    depth=self._depth,
                )
                executor = make_driver(staged, compute)
            except AiciError as error:
                if "cannot run in stages" not in error.message:
                    raise
                self.num_local += 1
                return self._local(config, compute)
            self.num_staged += 1
            return closing_with(executor, stack.pop_all())


def closing_with(executor: PipelineExecutor, stack: ExitStack) -> PipelineExecutor:
    """Let the end of the executor end its stages."""
    close = executor.close

    def close_all() -> None:
        close()
        stack.close()

    executor.close = close_all  # type: ignore[method-assign]
    return executor
