"""Padded decode steps, launched again where a GPU would replay a graph: equal logits, and no write to foreign pages."""

import pytest
import torch

from aici_base.ids import SeqId
from aici_engine.cache.ids import PageId
from aici_engine.model.cuda_graphs import Record, Run, record
from aici_engine.model.huggingface import HuggingFaceModel
from aici_engine.model.load import adopt
from aici_engine.step_input import PENDING, Chunk
from tests.engine.model.test_flash_attention import GPU, Reference, with_kernel
from tests.engine.model.test_models import LENGTHS, NEAR, PAGE_SIZE, Runner, build, sequences

NUM_PAGES = 64


class Recorder:
    """Runs the function again where a graph would be replayed."""

    def __init__(self) -> None:
        self.num_recorded = 0
        self.num_replayed = 0

    def __call__(self, run: Run) -> Run:
        self.num_recorded += 1

        def replay() -> torch.Tensor:
            self.num_replayed += 1
            return run()

        return replay


def decode(model: HuggingFaceModel, plain: HuggingFaceModel) -> Runner:
    """Run all prompts in one step, then decode steps of one sequence, of two, and so on; then a mixed step of one and
    two tokens.
    """
    there, wanted, prompts = Runner(model), Runner(plain), sequences()
    tokens = [prompt + prompts[3][:10] for prompt in prompts]
    # The first prompt has one token, so it runs with the first decode step.
    done = [0, *LENGTHS[1:]]
    works = [[(SeqId(i + 1), tokens[i], 0, LENGTHS[i]) for i in range(1, 5)]]
    for num in (1, 2, 3, 4, 5, 3, 1):
        works.append([(SeqId(i + 1), tokens[i], done[i], done[i] + 1) for i in range(num)])
        done = [at + (i < num) for i, at in enumerate(done)]
    works.append([(SeqId(i + 1), tokens[i], done[i], done[i] + 1 + i % 2) for i in (3, 4)])
    for work in works:
        torch.testing.assert_close(there.step(work), wanted.step(work), **NEAR)
    return there


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_padded_step_gives_what_its_sequences_give(family: str) -> None:
    model, recorder = adopt(build(family), eos_tokens=frozenset()), Recorder()
    runner = decode(with_kernel(model, Reference(), record=recorder), model)
    assert (recorder.num_recorded, recorder.num_replayed) == (4, 7)  # 1, 2, 4 and 8 sequences
    held = {page for i in range(5) for page in runner.cache.page_table(SeqId(i + 1))}
    for tensor in (*runner.storage.keys, *runner.storage.values):
        pages = tensor.view(NUM_PAGES + 1, PAGE_SIZE, -1).isnan()
        assert all(pages[page].all() for page in range(NUM_PAGES) if page not in held)
        # In the spare page, only the first row was written.
        assert pages[NUM_PAGES].all(dim=1).tolist() == [False] + [True] * (PAGE_SIZE - 1)


def test_a_model_that_cannot_be_recorded_runs_without() -> None:
    model, asked = adopt(build("llama"), eos_tokens=frozenset()), []

    def refuse(run: Run) -> Run:
        asked.append(run())
        raise RuntimeError("operation not permitted when stream is capturing")

    decode(with_kernel(model, Reference(), record=refuse), model)
    assert len(asked) == 1


@pytest.mark.parametrize("family", ["gemma2", "gpt_oss"])
def test_where_pages_are_gathered_nothing_is_recorded(family: str) -> None:
    model, recorder = adopt(build(family), eos_tokens=frozenset()), Recorder()
    runner = decode(with_kernel(model, Reference(), record=recorder), model)
    assert recorder.num_recorded == 0
    assert len(runner.storage.keys[0]) == NUM_PAGES * PAGE_SIZE


@pytest.mark.parametrize("recorded", [False, True])
def test_tokens_that_only_the_device_knows(recorded: bool) -> None:
    """The chunks hold other tokens, and have another order than the batch, which sorts them by length."""
    model = adopt(build("llama"), eos_tokens=frozenset())
    models = [with_kernel(model, Reference(), record=Recorder() if recorded else None) for _ in range(2)]
    prompts = [sequences()[3][at:] for at in range(3)]
    rows = []
    for each, ahead in zip(models, (False, True), strict=True):
        storage = each.make_storage(num_pages=12, page_size=PAGE_SIZE)
        pages = [[PageId(4 * i + k) for k in range(4)] for i in range(3)]
        starts = [7, 3, 5]
        each.forward(storage, [Chunk(SeqId(i), prompts[i][: starts[i]], 0, pages[i], 1) for i in range(3)])
        tokens = [prompts[i][starts[i]] for i in range(3)]
        chunks = [Chunk(SeqId(i), [PENDING if ahead else tokens[i]], starts[i], pages[i], 1) for i in range(3)]
        rows.append(
            each.forward_ahead(storage, chunks, torch.tensor(tokens)) if ahead else each.forward(storage, chunks)
        )
    torch.testing.assert_close(*rows, **NEAR)


@GPU
def test_on_a_gpu_a_replayed_step_gives_what_a_launched_one_gives() -> None:
    from torch.nn.attention.varlen import varlen_attn

    model = adopt(build("llama").to(torch.bfloat16), eos_tokens=frozenset(), device=torch.device("cuda"))
    num_recorded = 0

    def counted(run: Run) -> Run:
        nonlocal num_recorded
        replay = record(run)
        num_recorded += 1
        return replay

    def refuse(run: Run) -> Run:
        raise RuntimeError("launched")

    def logits(by: Record) -> torch.Tensor:
        runs = with_kernel(model, varlen_attn, page_size=256, record=by)
        storage, rows = runs.make_storage(num_pages=3, page_size=256), []
        for start, end in ((0, 20), (20, 21), (21, 22), (22, 23)):
            chunks = [Chunk(SeqId(i), sequences()[3][start + i : end + i], start, [PageId(i)], 1) for i in range(3)]
            rows.append(runs.forward(storage, chunks).clone())
        return torch.cat(rows)

    torch.testing.assert_close(logits(counted), logits(refuse), atol=1e-2, rtol=1e-2)
    assert num_recorded == 1
