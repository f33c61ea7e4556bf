"""The C decoder as a `Model`."""

from collections.abc import Sequence

from aici_engine.arrays import Array
from aici_engine.cache.storage import KVStorage
from aici_engine.config import KVCacheDtype
from aici_engine.native.packed_weights import PackedWeights
from aici_engine.native.stage import NativeStage
from aici_engine.native.thread_pool import ThreadPool
from aici_engine.pooling import FinalStates
from aici_engine.step_input import Chunk


class NativeModel(NativeStage):
    """A whole decoder: one stage with all layers."""

    same_bits = True

    def __init__(self, packed: PackedWeights, pool: ThreadPool, kv_cache_dtype: KVCacheDtype = "auto") -> None:
        super().__init__(packed, pool, kv_cache_dtype)
        self.name = packed.config.name
        self.states_size = self.hidden_size
        self.context = packed.config.context
        self.eos_tokens = frozenset(packed.config.eos_tokens)

    def forward(self, storage: KVStorage, chunks: Sequence[Chunk], final_states: FinalStates | None = None) -> Array:
        return self.run(storage, chunks, None, final_states)
