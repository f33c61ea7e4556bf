"""Loads a range of layers at a stage: from the stage's own model folders, from its store of tensors, or sent by the
driver."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aici_base.errors import UsageError
from aici_engine.cluster.frames import Buffer, FrameError, FromStage, LoadStage, TensorDigest, TensorPiece
from aici_engine.cluster.stage import WeightsLoader
from aici_engine.cluster.tensor_transfer import TensorReceiver
from aici_engine.config import DTYPES
from aici_engine.extras import needed_for
from aici_engine.model.manifest import NamedDigest
from aici_engine.model.stage_model import StageModel
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import FolderSource, TensorInfo
from aici_engine.model.tensor_store import GatheredSource, TensorStore
from aici_engine.native.stage_backend import StageSpec, make_stage

if TYPE_CHECKING:
    from aici_engine.cluster.tensor_group import TensorParallelStage

_BACKENDS: Final = ("native", "torch")

_log = logging.getLogger(__name__)


class StageLoader(WeightsLoader):
    """`folders`: models on this machine. `device`, `num_threads`: this machine's own choice; `None` takes the driver's
    device, and torch's number of threads. `num_ranks`: processes that share the heads of every layer. `memory_bytes`:
    a tensor from the driver must fit; `None`: any."""

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        store: TensorStore,
        device: str | None = None,
        num_threads: int | None = None,
        num_ranks: int = 1,
        memory_bytes: int | None = None,
    ) -> None:
        """Raises UsageError for a folder with a missing or damaged file."""
        for folder in folders:
            FolderSource(folder)
        self.read_bytes = self.sent_bytes = 0
        self._folders = folders
        self._store = store
        self._device = device
        self._num_threads = num_threads
        self._num_ranks = num_ranks
        self._memory_bytes = sys.maxsize if memory_bytes is None else memory_bytes
        self._group: TensorParallelStage | None = None
        self._load: LoadStage | None = None
        self._source: GatheredSource | None = None
        self._receiver: TensorReceiver | None = None

    def begin(self, load: LoadStage) -> FromStage | None:
        self._load, self._receiver = load, None
        self.read_bytes = self.sent_bytes = 0
        wanted = {tensor.name: _digest(tensor) for tensor in load.tensors}
        folders = [FolderSource(folder) for folder in self._folders]
        self._source = source = GatheredSource(_settings(load), {}, wanted, store=self._store, folders=folders)
        if not source.missing:
            return None
        self._store.make_room(wanted.values())
        names = set(source.missing)
        missing = [tensor for tensor in load.tensors if tensor.name in names]
        self.sent_bytes = sum(tensor.num_bytes for tensor in missing)
        _log.info("%d tensors are in no --model here: the driver sends %d bytes", len(missing), self.sent_bytes)
        self._receiver = TensorReceiver(missing, keep=self._keep, max_bytes=self._memory_bytes)
        return self._receiver.request()

    def take(self, piece: TensorPiece, body: Buffer) -> tuple[FromStage | None, bool]:
        if self._receiver is None:
            raise FrameError("the driver sends a tensor that nobody asked for")
        answer = self._receiver.take(piece, body)
        return answer, self._receiver.is_done

    def finish(self) -> StageModel:
        assert self._load is not None
        assert self._source is not None
        load, source = self._load, self._source
        self._source = self._receiver = None
        source.refresh()
        part = LayerRange(load.first, load.last, embedding=load.embedding, head=load.head)
        model = self._make(source, part, self._spec(load))
        self.read_bytes = source.num_read
        return model

    def _make(self, source: GatheredSource, part: LayerRange, spec: StageSpec) -> StageModel:
        if self._num_ranks == 1:
            return make_stage(source, part, spec)
        if self._group is not None:
            self._group.close()
        with needed_for("tensor parallelism"):
            from aici_engine.cluster.tensor_group import TensorParallelStage
        self._group = TensorParallelStage(source, part, spec, num_ranks=self._num_ranks)
        return self._group

    def _keep(self, tensor: TensorDigest, data: bytearray) -> None:
        with self._store.receive(_digest(tensor)) as file:
            file.write(memoryview(data))

    def _spec(self, load: LoadStage) -> StageSpec:
        if load.dtype not in DTYPES or load.dtype == "auto" or load.backend not in _BACKENDS:
            raise UsageError(f"the driver asks for the format {load.dtype!r} on {load.backend!r}, which are not known")
        device = self._device or load.device
        return StageSpec(load.dtype, load.backend, device, load.page_size, self._num_threads)  # type: ignore[arg-type]


def _digest(tensor: TensorDigest) -> NamedDigest:
    return NamedDigest(TensorInfo(tensor.dtype, tensor.shape), tensor.sha256.hex())


def _settings(load: LoadStage) -> dict[str, Any]:
    try:
        settings = msgspec.json.decode(load.config, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FrameError(f"the model's configuration cannot be read: {error}") from None
    return settings
