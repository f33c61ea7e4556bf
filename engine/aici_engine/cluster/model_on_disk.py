"""The driver's model: a folder, divided into ranges."""

from functools import cached_property

import msgspec

from aici_engine.arrays import bytes_of
from aici_engine.cluster.assembly import Conversation, DividedModel, Link
from aici_engine.cluster.frames import FrameError, LoadStage, NeedTensors, PiecesTaken, TensorDigest
from aici_engine.cluster.tensor_transfer import TensorSender
from aici_engine.config import Dtype, EngineConfig
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.manifest import manifest, model_digest
from aici_engine.model.stage_model import StageModel
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import FolderSource
from aici_engine.native.stage_backend import decide, make_stage
from aici_engine.native.stage_source import describe, stage_tensors


class ModelOnDisk(DividedModel):
    """Decides the number format and the backend once, for all stages. Raises UsageError for a model that cannot be
    divided."""

    def __init__(self, config: EngineConfig, compute: ComputeDevice) -> None:
        self._source = FolderSource(config.model_dir)
        facts = describe(self._source)
        self.num_layers = facts.num_layers
        self.hidden_size = facts.hidden_size
        self.context = facts.context
        self.eos_tokens = facts.eos_tokens
        self.page_size = compute.page_size
        self._spec = decide(self._source, config, compute)

    def load_frame(self, part: LayerRange) -> LoadStage:
        spec = self._spec
        return LoadStage(
            model=self.digest,
            config=msgspec.json.encode(dict(self._source.config)),
            first=part.first,
            last=part.last,
            embedding=part.embedding,
            head=part.head,
            dtype=spec.dtype,
            backend=spec.backend,
            device=spec.device,
            page_size=spec.page_size,
            num_threads=0,
            tensors=self._digests(part),
        )

    def make(self, part: LayerRange) -> StageModel:
        return make_stage(self._source, part, self._spec)

    def send_tensors(self, link: Link, asked: NeedTensors) -> Conversation[None]:
        sizes = {name: info.nbytes for name, info in self._source.tensors.items()}
        sender = TensorSender(asked, sizes=sizes, read=self._read, send=link.send)
        sender.start()
        while not sender.is_done:
            message = yield
            if not isinstance(message, PiecesTaken):
                raise FrameError(f"{type(message).__name__} came while tensors were sent")
            sender.taken(message)

    @property
    def dtype(self) -> Dtype:
        """The number format of the weights; never "auto"."""
        return self._spec.dtype

    @cached_property
    def digest(self) -> bytes:
        """The digest of the whole model."""
        return bytes.fromhex(model_digest(self._source))

    def _digests(self, part: LayerRange) -> list[TensorDigest]:
        known = manifest(self._source, stage_tensors(self._source, part))
        tensors = self._source.tensors
        return [
            TensorDigest(name, tensors[name].dtype, tensors[name].shape, tensors[name].nbytes, bytes.fromhex(sha256))
            for name, sha256 in known.items()
        ]

    def _read(self, name: str) -> memoryview:
        return bytes_of(self._source.read(name))
