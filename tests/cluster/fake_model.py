"""A decoder in integers, whole or by ranges of layers. A wrong page, order or state changes the logits."""

from collections.abc import Sequence

import torch

from aici_base.ids import TokenId
from aici_engine.cache.storage import KVStorage, LayerShape
from aici_engine.cache.view import gather, kv_rows, write
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.torch_storage import torch_storage
from aici_engine.pooling import FinalStates
from aici_engine.step_input import Chunk

VOCAB_SIZE = 50
HIDDEN_SIZE = 3
PRIME = 997
SHAPE = LayerShape(num_kv_heads=1, key_dim=HIDDEN_SIZE, value_dim=1)


class FakeStage:
    """All numbers are integers below `PRIME`, in f32. A layer adds to a token's state the sum of the keys of all tokens
    up to the token, in the order of their positions.

    `num_runs` counts the steps; number `fails_at_run` fails.
    """

    vocab_size = VOCAB_SIZE
    hidden_size = states_size = HIDDEN_SIZE
    context = 64
    eos_tokens = frozenset({TokenId(0)})
    name = "Fake"
    same_bits = False
    states_dtype = torch.float32
    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, part: LayerRange, *, fails_at_run: int = 0) -> None:
        self.part = part
        self.layers = [SHAPE] * part.num_layers
        self.fails_at_run = fails_at_run
        self.num_runs = 0

    @property
    def token_bytes(self) -> int:
        return sum(layer.num_elements for layer in self.layers) * 4

    @property
    def weight_bytes(self) -> int:
        return 1000 * self.part.num_layers

    def make_storage(self, *, num_pages: int, page_size: int) -> KVStorage:
        storage = torch_storage(
            self.layers, num_pages=num_pages, page_size=page_size, dtype=self.dtype, device=self.device
        )
        for tensor in storage.keys:
            tensor.fill_(torch.nan)
        return storage

    def run(self, storage: KVStorage, chunks: Sequence[Chunk], states: torch.Tensor | None) -> torch.Tensor:
        self.num_runs += 1
        if self.num_runs == self.fails_at_run:
            raise ValueError("a fault of the model")
        if self.part.embedding:
            tokens = torch.tensor([float(token) for chunk in chunks for token in chunk.tokens])
            states = torch.stack([tokens, tokens * 7 % PRIME, tokens * tokens % PRIME], dim=1)
        assert states is not None
        if self.part.head and not self.part.num_layers and not self.part.embedding:
            return self._logits(states)
        lens = [len(chunk.tokens) for chunk in chunks]
        assert states.shape == (sum(lens), HIDDEN_SIZE)
        assert states.dtype == self.states_dtype
        states = states.clone()
        for index in range(self.part.num_layers):
            for chunk, own in zip(chunks, states.split(lens), strict=True):
                self._attend(storage, index, self.part.first + index, chunk, own)
        if not self.part.head:
            return states
        picked = [own[len(own) - chunk.num_logits :] for chunk, own in zip(chunks, states.split(lens), strict=True)]
        return self._logits(torch.cat(picked))

    def forward(
        self, storage: KVStorage, chunks: Sequence[Chunk], final_states: FinalStates | None = None
    ) -> torch.Tensor:
        assert final_states is None
        return self.run(storage, chunks, None)

    def _attend(self, storage: KVStorage, index: int, layer: int, chunk: Chunk, own: torch.Tensor) -> None:
        rows = torch.from_numpy(kv_rows(chunk.pages, storage.page_size, 0, chunk.end))
        write(storage, index, rows[chunk.start :], own[:, None, :], own[:, None, :1])
        keys, _ = gather(storage, index, rows)
        weights = torch.arange(1, chunk.end + 1)[:, None]
        sums = (keys[:, 0] * weights).cumsum(0) % PRIME
        own.copy_((own * (layer + 3) + sums[chunk.start :] + layer) % PRIME)

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        """Spread so that every token may be the likeliest."""
        vocabulary = torch.arange(VOCAB_SIZE, dtype=torch.float32)
        return -((states.sum(1, keepdim=True) + 17 * vocabulary) % VOCAB_SIZE) / 10


def whole(num_layers: int) -> FakeStage:
    return FakeStage(LayerRange(0, num_layers, embedding=True, head=True))
