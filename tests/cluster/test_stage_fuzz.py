"""Steps of a hostile driver, against the real kernels: refused, or computed within the pages that the step names."""

import random
from contextlib import suppress

import numpy as np
import pytest

from aici_engine.arrays import Array
from aici_engine.cluster.frames import Attach, ChunkFrame, FrameError, StepFrame
from aici_engine.cluster.stage_epoch import StageEpoch
from aici_engine.config import EngineConfig
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.stage_model import LayerRange, StageModel
from aici_engine.model.tensor_source import FolderSource
from aici_engine.native.stage_backend import decide, make_stage
from tests.engine.model.test_models import PAGE_SIZE, build

NUM_PAGES, CONTEXT, MAX_TOKENS = 6, 80, 40
PARTS = {"first": LayerRange(0, 1, embedding=True, head=False), "middle": LayerRange(1, 3, embedding=False, head=False)}


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StageModel]:
    folder = tmp_path_factory.mktemp("model")
    build("llama").save_pretrained(folder)
    source = FolderSource(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AICI_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        config = EngineConfig(model_dir=folder, num_threads=1)
        spec = decide(source, config, ComputeDevice("cpu", PAGE_SIZE))
        return {name: make_stage(source, part, spec) for name, part in PARTS.items()}


WRONG = [NUM_PAGES, CONTEXT, 2**31 - 1]


def random_step(epoch: StageEpoch, rnd: random.Random) -> StepFrame:
    """Return a step of wild but allowed numbers; one in four steps has a number that is not."""
    chunks = []
    for seq in rnd.sample([1, 2, 3], rnd.randint(1, 3)):
        keep = rnd.randint(0, epoch._mirror.num_held(seq))
        pages = [rnd.randrange(NUM_PAGES) for _ in range(rnd.randint(0 if keep else 1, max(1, NUM_PAGES - keep)))]
        end = rnd.randint(1, min(CONTEXT, (keep + len(pages)) * PAGE_SIZE))
        count = rnd.randint(1, min(end, MAX_TOKENS // 3))
        chunks.append([seq, end - count, count, keep, pages, rnd.randint(0, 1)])
    forgotten = [seq for seq in (4, 5) if rnd.random() < 0.5]
    copies = [[rnd.randrange(NUM_PAGES), rnd.randrange(NUM_PAGES)] for _ in range(rnd.randint(0, 2))]
    if rnd.random() < 0.25:
        place = rnd.choice([rnd.choice(chunks), *copies])
        index = rnd.randrange(min(len(place), 4))
        place[index] = rnd.choice(WRONG)
    return StepFrame(
        1,
        epoch.num_steps + 1,
        forgotten,
        [(source, target) for source, target in copies],
        [ChunkFrame(*chunk) for chunk in chunks],
    )


def body_of(step: StepFrame, stage: StageModel, rnd: random.Random) -> bytearray:
    num_tokens = min(MAX_TOKENS, sum(chunk.count for chunk in step.chunks))
    if not stage.part.embedding:
        return bytearray(rnd.randbytes(num_tokens * stage.hidden_size * 4))  # any floats: infinite, not a number
    end = stage.vocab_size + int(rnd.random() < 0.1)
    tokens = [end - 1, *(rnd.randrange(end) for _ in range(num_tokens - 1))]
    return bytearray(b"".join(token.to_bytes(4, "little") for token in tokens))


@pytest.mark.parametrize("name", PARTS)
def test_steps_of_any_numbers(name: str, stages: dict[str, StageModel]) -> None:
    stage = stages[name]
    rnd = random.Random(17)
    outcomes = [outcome for _ in range(25) for outcome in life(stage, rnd)]
    assert 100 < sum(outcomes) < len(outcomes) - 25


def life(stage: StageModel, rnd: random.Random) -> list[bool]:
    """Give an epoch some steps. Return which were accepted."""
    epoch = StageEpoch(stage, Attach(1, 0, 2, "", NUM_PAGES, PAGE_SIZE, MAX_TOKENS, CONTEXT, rows_only=False))
    tensors = [*epoch._storage.keys, *epoch._storage.values]
    for tensor in tensors:
        tensor[:] = 0
    outcomes = []
    for _ in range(8):
        before = [tensor.copy() for tensor in tensors]
        step = random_step(epoch, rnd)
        named = set()
        with suppress(FrameError):
            done, states = epoch.step(step, body_of(step, stage, rnd))
            assert done.failure is None
            assert len(states) == sum(chunk.count for chunk in step.chunks) * stage.hidden_size * 4
            named = {target for _, target in step.copies}.union(*(epoch._mirror._tables[c.seq] for c in step.chunks))
        outcomes.append(bool(named))
        others = [page for page in range(NUM_PAGES) if page not in named]
        for old, new in zip(before, tensors, strict=True):
            assert np.array_equal(bits_of_pages(old, others), bits_of_pages(new, others))
    return outcomes


def bits_of_pages(array: Array, pages: list[int]) -> Array:
    return array.reshape(NUM_PAGES, -1)[pages].view(np.uint8)
