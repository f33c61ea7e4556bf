"""The arguments of FlashAttention, checked by a slow kernel with the same signature.

On a GPU, FlashAttention itself.
"""

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention.varlen import varlen_attn

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cache.storage import LayerShape
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.model import flash_attention
from aici_engine.model.cuda_graphs import Record, Run
from aici_engine.model.huggingface import HuggingFaceModel
from aici_engine.model.load import adopt
from aici_engine.request import Request
from aici_engine.step_input import Chunk
from tests.engine.model.test_models import NEAR, PAGE_SIZE, Runner, build, sequences
from tests.engine.support import encode

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


class Reference:
    """A slow torch.nn.attention.varlen.varlen_attn, after its documentation."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cu_seq_q: torch.Tensor,
        cu_seq_k: torch.Tensor, max_q: int, max_k: int, *, scale: float, window_size: tuple[int, int],
        enable_gqa: bool, seqused_k: torch.Tensor, block_table: torch.Tensor, num_splits: int,
    ) -> torch.Tensor:  # fmt: skip
        self.num_calls += 1
        assert {each.dtype for each in (cu_seq_q, cu_seq_k, seqused_k, block_table)} == {torch.int32}
        assert num_splits == 1
        assert window_size[1] == 0
        assert enable_gqa or query.shape[1] == key.shape[2]
        starts, lens = cu_seq_q.tolist(), seqused_k.tolist()
        assert (starts[0], starts[-1], max_q) == (0, len(query), int(cu_seq_q.diff().max()))
        assert (cu_seq_k[0], cu_seq_k.diff().tolist()) == (0, lens)
        assert max(lens) <= max_k <= block_table.shape[1] * key.shape[1]
        out = torch.full_like(query, torch.nan)
        for i, (first, last) in enumerate(itertools.pairwise(starts)):
            k, v = (each[block_table[i].long()].flatten(0, 1)[: lens[i]] for each in (key, value))
            k, v = (each.repeat_interleave(query.shape[1] // key.shape[2], 1).transpose(0, 1) for each in (k, v))
            # The last query belongs to the last key.
            behind = torch.arange(lens[i] - (last - first), lens[i])[:, None] - torch.arange(lens[i])
            visible = (behind >= 0) & ((behind <= window_size[0]) | (window_size[0] < 0))
            logits = (query[first:last].transpose(0, 1) @ k.transpose(1, 2) * scale).masked_fill(~visible, -torch.inf)
            out[first:last] = (logits.softmax(-1) @ v).transpose(0, 1)
        return out


def with_kernel(
    model: HuggingFaceModel, attend: flash_attention.Attend, *, page_size: int = PAGE_SIZE, record: Record | None = None
) -> HuggingFaceModel:
    return HuggingFaceModel(
        model.module, layers=model.layers, vocab_size=model.vocab_size, context=model.context, eos_tokens=frozenset(),
        name=model.name, kernel=flash_attention.FlashKernel(attend, page_size), record=record,
    )  # fmt: skip


@pytest.mark.parametrize("family", ["llama", "llama-mha", "qwen2-window", "mistral", "gemma3", "gpt2", "gemma2"])
def test_pages_are_told_as_the_kernel_wants_them(family: str) -> None:
    model, reference = adopt(build(family), eos_tokens=frozenset()), Reference()
    paged = with_kernel(model, reference)
    plain, there, prompts, sizes = Runner(model), Runner(paged), sequences(), random.Random(2)
    done, num_steps = [0] * len(prompts), 0
    while any(at < len(prompt) for at, prompt in zip(done, prompts, strict=True)):
        work = []
        for i, prompt in enumerate(prompts):
            end = min(len(prompt), done[i] + sizes.choice((0, 1, 1, 5, 20)))
            if end > done[i]:
                work.append((SeqId(i + 1), prompt, done[i], end))
                done[i] = end
        if work:
            num_steps += 1
            torch.testing.assert_close(there.step(work), plain.step(work), **NEAR)
    # The kernel does not support softcaps.
    assert reference.num_calls == (0 if family == "gemma2" else num_steps * len(model.layers))


def test_pages_of_a_size_that_the_kernel_does_not_read_are_gathered() -> None:
    model = adopt(build("llama"), eos_tokens=frozenset())
    paged = with_kernel(model, Reference(), page_size=2 * PAGE_SIZE)
    work = [(SeqId(1), sequences()[2], 0, 19)]
    assert torch.equal(Runner(paged).step(work), Runner(model).step(work))


@pytest.mark.parametrize(
    ("dtype", "shapes", "suits"),
    [
        (torch.bfloat16, [(64, 64), (256, 256)], True),
        (torch.float16, [(8, 8)], True),
        (torch.float32, [(64, 64)], False),
        (torch.bfloat16, [(64, 64), (64, 32)], False),
        (torch.bfloat16, [(20, 20)], False),
        (torch.bfloat16, [(512, 512)], False),
    ],
)
def test_what_flash_attention_serves(dtype: torch.dtype, shapes: list[tuple[int, int]], suits: bool) -> None:
    assert flash_attention.suits(dtype, [LayerShape(2, *widths) for widths in shapes]) is suits


def test_an_older_torch_gathers_pages() -> None:
    """torch 2.11, whose function has other arguments, once failed in the first step on an H200."""

    def of_torch_2_11(
        query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: int, max_k: int, *,
        return_aux: Any = None, scale: float | None = None, window_size: tuple[int, int] = (-1, -1),
    ) -> None:  # fmt: skip
        """Never called."""

    assert not flash_attention.reads_pages(of_torch_2_11)
    assert flash_attention.reads_pages(varlen_attn)


def test_on_the_cpu_there_is_no_such_kernel() -> None:
    assert flash_attention.kernel_for(torch.device("cpu"), torch.bfloat16, [LayerShape(2, 64, 64)]) is None


NOWHERE = torch.device("meta")
"""Tensors on `meta` have shapes and no numbers. Reading a number, or mixing with a CPU tensor, fails."""


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3", "gemma2", "phi"])
@pytest.mark.parametrize("page_size", [16, 256])
def test_a_step_asks_a_device_for_nothing_and_stays_there(family: str, page_size: int) -> None:
    model = adopt(build(family).to(torch.bfloat16), eos_tokens=frozenset(), device=NOWHERE)
    launched: list[Run] = []

    def launch(run: Run) -> Run:
        launched.append(run)
        return run

    paged = with_kernel(model, varlen_attn, page_size=256, record=launch)
    storage = paged.make_storage(num_pages=40, page_size=page_size)

    def step(*ends: tuple[int, int]) -> torch.Size:
        chunks = [
            Chunk(SeqId(i), sequences()[3][start:end], start, [PageId(i), PageId(20 + i)], 1)
            for i, (start, end) in enumerate(ends)
        ]
        logits = paged.forward(storage, chunks)
        assert logits.device == NOWHERE
        assert logits.dtype == torch.float32
        return logits.shape

    assert step((0, 9), (0, 1), (3, 4), (5, 30), (29, 30)) == (5, 97)
    assert step((9, 10), (1, 2), (4, 5)) == (3, 97)
    # All layers that the kernel serves get padded steps.
    assert len(launched) == (page_size == 256 and family != "gemma2")


@GPU
def test_on_a_gpu_the_kernel_agrees_with_the_reference() -> None:
    torch.manual_seed(0)
    device = torch.device("cuda")
    lens, counts = [300, 1, 700, 513], [1, 1, 200, 1]
    keys, values = (torch.randn(9, 256, 2, 64, dtype=torch.bfloat16, device=device) for _ in range(2))
    queries = torch.randn(sum(counts), 8, 64, dtype=torch.bfloat16, device=device)
    starts, sums = (torch.tensor([0, *each]).cumsum(0).int() for each in (counts, lens))
    table = torch.tensor([[3, 1, 3], [0, 0, 0], [2, 8, 4], [7, 6, 5]], dtype=torch.int32)
    for window in ((-1, 0), (99, 0)):
        options: Any = {"scale": 0.125, "window_size": window, "enable_gqa": True, "num_splits": 1}
        wanted = Reference()(
            queries.cpu().float(), keys.cpu().float(), values.cpu().float(), starts, sums, 200, 700,
            seqused_k=torch.tensor(lens).int(), block_table=table, **options,
        )  # fmt: skip
        found = varlen_attn(
            queries, keys, values, starts.cuda(), sums.cuda(), 200, 700,
            seqused_k=torch.tensor(lens).int().cuda(), block_table=table.cuda(), **options,
        )  # fmt: skip
        torch.testing.assert_close(found.cpu().float(), wanted, atol=2e-2, rtol=2e-2)


@GPU
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_on_a_gpu_the_engine_says_what_it_says_on_the_cpu(tiny_model: Path, dtype: Any) -> None:
    """Compare in f32. In bf16, rounding may change a greedy choice, so the run must only finish."""
    prompts = [encode("Hello" * (1 + k)) for k in range(8)]
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)

    def texts(device: Any) -> list[tuple[TokenId, ...]]:
        with Engine(EngineConfig(model_dir=tiny_model, device=device, dtype=dtype, num_pages=40)) as engine:
            handles = [engine.submit(Request(prompt=prompt, sampling=params)) for prompt in prompts]
            return [tuple(token.token_id for token in handle.wait().tokens) for handle in handles]

    found = texts("cuda")
    assert [len(each) for each in found] == [20] * 8
    if dtype == "float32":
        assert found == texts("cpu")
