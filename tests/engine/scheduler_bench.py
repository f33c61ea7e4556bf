"""A scheduler over a small cache, and the parts of a step that follow its plan."""

from collections.abc import Iterable

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.kvcache import KVCache
from aici_engine.config import SamplingParams
from aici_engine.prefill_budget import PrefillBudget
from aici_engine.request import NOBODY, Share
from aici_engine.scheduler import Scheduler
from aici_engine.sequences.sequence import Sequence
from aici_engine.step_plan import PlannedChunk, StepPlan

PAGE_SIZE = 4


def make(
    num_pages: int,
    max_num_seqs: int,
    max_batch_tokens: int,
    prefill_budget: PrefillBudget | None = None,
    depth: int = 1,
) -> tuple[Scheduler, KVCache]:
    cache = KVCache(num_pages=num_pages, page_size=PAGE_SIZE)
    return Scheduler(
        cache,
        max_num_seqs=max_num_seqs,
        max_batch_tokens=max_batch_tokens,
        prefill_budget=prefill_budget or PrefillBudget(None),
        depth=depth,
    ), cache


def sequence(
    seq_id: int,
    prompt_len: int,
    limit: int,
    *,
    at: float = 0.0,
    priority: int = 0,
    kind: int | None = None,
    share: Share = NOBODY,
) -> Sequence:
    """Return a sequence. Sequences of the same `kind` begin alike; sequences without a kind do not."""
    return Sequence(
        SeqId(seq_id),
        prompt=[TokenId(seq_id if kind is None else -kind)] * prompt_len,
        sampling=SamplingParams(),
        controller=None,
        limit=limit,
        sink=lambda event: None,
        submitted_at=at,
        priority=priority,
        share=share,
    )


def perform(plan: StepPlan, cache: KVCache) -> None:
    """Compute a plan, and sample the due tokens."""
    compute(plan, cache)
    for chunk in plan.chunks:
        if chunk.samples:
            chunk.seq.tokens.append(TokenId(0))


def compute(plan: StepPlan, cache: KVCache) -> None:
    for chunk in plan.chunks:
        chunk.seq.progress.num_computed += chunk.num_tokens
        cache.advance(chunk.seq.seq_id, chunk.seq.tokens, chunk.seq.progress.num_computed)


def fork(scheduler: Scheduler, chunk: PlannedChunk, seq_ids: Iterable[int]) -> None:
    """Fork a sequence between computing and sampling. A fork samples a token of its own."""
    for seq_id in seq_ids if chunk.samples else ():
        child, _ = chunk.seq.clone(SeqId(seq_id))
        scheduler.fork(chunk.seq, child)
        child.tokens.append(TokenId(0))


def cut(scheduler: Scheduler, seq: Sequence, num_tokens: int) -> None:
    """Remove tokens as a splice without new tokens."""
    del seq.tokens[max(1, len(seq.tokens) - num_tokens) :]
    seq.progress.num_computed = min(seq.progress.num_computed, len(seq.tokens) - 1)
    scheduler.settle(seq)
