"""Make the components of an engine and connect them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from aici_base.errors import UsageError
from aici_base.ids import SeqId, TokenId
from aici_base.tokenizer.tokens import read_vocabulary, tokenizer_file
from aici_engine.cache.kvcache import KVCache
from aici_engine.config import EngineConfig, no_drafts
from aici_engine.control.guest_time import GuestTimes
from aici_engine.control.runtime import ControllerRuntime
from aici_engine.draft_model import PagedDraftModel
from aici_engine.executor import Executor
from aici_engine.heartbeat import Heartbeat
from aici_engine.local_executor import LocalExecutor
from aici_engine.loop import Loop
from aici_engine.model.compute_device import ComputeDevice, choose_device, has_gpu
from aici_engine.model_files import check_model_files
from aici_engine.model_tokenizer import ModelTokenizer
from aici_engine.native.backend import make_model
from aici_engine.native.library import load
from aici_engine.prefill_budget import PrefillBudget
from aici_engine.sample.masks import MaskApplier
from aici_engine.sample.native import NativeSampling
from aici_engine.sample.sampler import HostSampler, Sampler
from aici_engine.scheduler import Scheduler
from aici_engine.shared_components import share_components
from aici_engine.speculation.model_speculator import ModelSpeculator
from aici_engine.speculation.speculator import NgramSpeculator, NoSpeculator, Speculator
from aici_engine.speculation.token_stems import token_stems
from aici_runtime.memory.mask_region import mask_bytes

if TYPE_CHECKING:
    from aici_engine.ahead_executor import AheadModel
    from aici_engine.engine_loop import EngineLoop
    from aici_engine.model.interface import Model
    from aici_engine.request import Request


class ModelPlace(Protocol):
    """The place where the model runs. `states_size`, `memory_bytes`, `status`: see `Executor`."""

    @property
    def states_size(self) -> int: ...

    @property
    def memory_bytes(self) -> int: ...

    def status(self) -> Mapping[str, Any] | None: ...


class CacheUsage(Protocol):
    """A cache of `num_pages` pages. `usage`: the part in use, 0 to 1."""

    @property
    def num_pages(self) -> int: ...

    @property
    def usage(self) -> float: ...


def any_request(request: "Request") -> None:
    """The null check: the engine serves every request."""


@dataclass(frozen=True, slots=True)
class EngineComponents:
    """The parts of an engine that `Engine` uses. `max_len`: the most tokens of a sequence. `check`: raises UsageError
    for a request that these components cannot serve."""

    loop: "EngineLoop"
    executor: ModelPlace
    cache: CacheUsage
    tokenizer: ModelTokenizer
    new_id: Callable[[], SeqId]
    vocab_size: int
    max_len: int
    eos_tokens: frozenset[TokenId]
    start_token: TokenId
    check: "Callable[[Request], None]" = any_request


def build_components(
    config: EngineConfig,
    runtime: ControllerRuntime,
    on_step: Callable[[], None] | None = None,
    heartbeat: Heartbeat | None = None,
    on_guest_time: Callable[[GuestTimes], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> EngineComponents:
    """Load the model and make the components. `clock`: see `EarlyGuests`.

    Raises UsageError if the folder cannot be served, or does not fit the vocabulary of `runtime`.
    """
    check_model_files(config.model_dir)
    compute = choose_device(config, has_gpu=config.device != "cpu" and has_gpu())
    executor = make_executor(config, compute)
    try:
        return _connect(config, executor, runtime, on_step, heartbeat or Heartbeat(), on_guest_time, clock)
    except BaseException:
        executor.close()
        raise


def _connect(
    config: EngineConfig,
    executor: Executor,
    runtime: ControllerRuntime,
    on_step: Callable[[], None] | None,
    heartbeat: Heartbeat,
    on_guest_time: Callable[[GuestTimes], None] | None,
    clock: Callable[[], float],
) -> EngineComponents:
    shared = share_components(
        config,
        runtime,
        num_logits=executor.vocab_size,
        model_eos=executor.eos_tokens,
        on_step=on_step,
        on_guest_time=on_guest_time,
    )
    num_pages, page_size = executor.num_pages, executor.page_size
    cache = KVCache(num_pages=num_pages, page_size=page_size, prefix_cache=config.prefix_cache)
    heartbeat.weight_bytes, heartbeat.waits = executor.memory_bytes, executor.waits
    loop = Loop(
        executor=executor,
        cache=cache,
        scheduler=Scheduler(
            cache,
            max_num_seqs=config.max_num_seqs,
            max_batch_tokens=config.max_batch_tokens,
            prefill_budget=PrefillBudget(config.prefill_slowdown),
            depth=executor.depth,
            speculator=_speculator(config, executor, cache, shared.token_bytes),
        ),
        session=shared.session,
        sampler=_sampler(runtime, shared.eos_tokens, executor.vocab_size, executor.device),
        output=shared.output,
        eos_tokens=shared.eos_tokens,
        eos_for_guests=runtime.eos_token,
        kept_eos=shared.kept_eos,
        replay_timeout_s=config.replay_timeout_s,
        heartbeat=heartbeat,
        clock=clock,
    )
    return EngineComponents(
        loop,
        executor,
        cache,
        shared.tokenizer,
        shared.new_id,
        executor.vocab_size,
        min(_context(config, executor.context), num_pages * page_size),
        shared.eos_tokens,
        shared.start_token,
    )


def _speculator(config: EngineConfig, executor: Executor, cache: KVCache, token_bytes: Sequence[bytes]) -> Speculator:
    """Drafts need logits with the same bits in any chunk, and the guests' whole conversation between two passes.

    Raises UsageError if ngram was asked for and the model cannot draft.
    """
    if isinstance(executor, LocalExecutor) and executor.draft_model is not None:
        ngrams = config.speculate != "off"
        stems = token_stems(token_bytes) if ngrams else ()
        return ModelSpeculator(executor.draft_model, cache, ngrams=ngrams, stems=stems)
    if config.speculate == "off":
        return NoSpeculator()
    if executor.same_bits and executor.depth == 1:
        return NgramSpeculator(token_stems(token_bytes))
    if config.speculate == "ngram":
        raise no_drafts("drafts need the kernels, which do not run the whole model")
    return NoSpeculator()


def _sampler(runtime: ControllerRuntime, eos_tokens: frozenset[TokenId], num_logits: int, device: str) -> Sampler[Any]:
    library = load()
    native = None if library is None else NativeSampling(library, num_logits)
    masks = MaskApplier(
        vocab_size=runtime.vocab_size,
        eos_token=runtime.eos_token,
        all_eos=eos_tokens,
        num_logits=num_logits,
        close=None if native is None else native.mask,
    )
    sampler = HostSampler(masks)
    if native is not None:
        sampler = HostSampler(masks, native.choose, native.log_softmax, native.choose_rows)
    if device == "cpu":
        return sampler
    # Imported here: torch takes a second and a half, and without a GPU nothing here needs it.
    import torch

    from aici_engine.sample.device_sampler import DeviceSampler
    from aici_engine.sample.torch_pipeline import TensorMasks

    there = TensorMasks(
        vocab_size=runtime.vocab_size,
        eos_token=runtime.eos_token,
        all_eos=eos_tokens,
        num_logits=num_logits,
        device=torch.device(device),
    )
    found = DeviceSampler(sampler, there, torch.device(device))
    found.warm_up(num_logits, mask_bytes(runtime.vocab_size))
    return found


def make_executor(config: EngineConfig, compute: ComputeDevice) -> Executor:
    """Load the model, here or in stages.

    Raises UsageError if the folder cannot be served, UnavailableError if a stage cannot be had.
    """
    if config.stages:
        # Imported here: one process needs no sockets.
        from aici_engine.cluster.driver import make_driver

        return make_driver(config, compute)
    if config.nodes or config.ray_address is not None:
        from aici_engine.cluster.cluster_driver import make_cluster_driver

        return make_cluster_driver(config, compute)
    model = make_model(config, compute)
    draft = None if config.draft_model is None else _draft_model(config, config.draft_model, compute, model)
    num_pages = config.num_pages or _num_pages(config, compute, model, draft)
    if not compute.on_cpu:
        from aici_engine.ahead_executor import AheadExecutor

        return AheadExecutor(cast("AheadModel", model), num_pages=num_pages, page_size=compute.page_size)
    if draft is None:
        return LocalExecutor(model, num_pages=num_pages, page_size=compute.page_size)
    vocab_size = len(_token_bytes(config.model_dir))
    library = load()
    assert library is not None, "the kernels run the draft model"
    choose = NativeSampling(library, draft.vocab_size).choose
    drafting = PagedDraftModel(
        draft, num_pages=num_pages, page_size=compute.page_size, vocab_size=vocab_size, choose=choose
    )
    return LocalExecutor(model, num_pages=num_pages, page_size=compute.page_size, draft_model=drafting)


def _draft_model(config: EngineConfig, folder: Path, compute: ComputeDevice, model: "Model") -> "Model":
    """Load the draft model, without the adapter of `model`. Raises UsageError if it cannot draft for `model`."""
    if not (compute.on_cpu and model.same_bits):
        raise no_drafts("drafts need the kernels, which do not run the whole model", param="draft_model")
    check_model_files(folder)
    tokens = _token_bytes(config.model_dir)
    if _token_bytes(folder) != tokens:
        raise _no_draft_model(f"the draft model in {folder} has other tokens than the model in {config.model_dir}")
    dtype = config.draft_dtype or config.dtype
    of_draft = replace(config, model_dir=folder, dtype=dtype, lora=None, draft_model=None, draft_dtype=None)
    draft = make_model(of_draft, compute, beside=model)
    if not draft.same_bits:
        raise _no_draft_model(f"the kernels do not run the whole draft model in {folder}")
    if draft.vocab_size < len(tokens):
        raise _no_draft_model(f"the draft model has logits for {draft.vocab_size} of {len(tokens)} tokens")
    return draft


def _no_draft_model(why: str) -> UsageError:
    return UsageError(
        why,
        hint="give a model of the same family, or the model itself with draft_dtype int4",
        cli_hint="give a model of the same family, or the model itself with --draft-dtype int4",
        param="draft_model",
    )


def _token_bytes(folder: Path) -> list[bytes]:
    return read_vocabulary(tokenizer_file(str(folder)).read_bytes()).token_bytes


def _context(config: EngineConfig, context: int) -> int:
    """Return the positions to serve of a model with `context` positions."""
    return min(context, config.max_context or context)


def _num_pages(config: EngineConfig, compute: ComputeDevice, model: "Model", draft: "Model | None" = None) -> int:
    """Return how many pages to allocate. A page of the cache costs a page of the draft model too."""
    token_bytes = model.token_bytes + (0 if draft is None else draft.token_bytes)
    page_bytes = token_bytes * compute.page_size
    free_bytes = config.memory_fraction * compute.free_bytes()
    affordable = int(min(free_bytes, config.cache_bytes or free_bytes) / page_bytes)
    useful = config.max_num_seqs * -(-_context(config, model.context) // compute.page_size)
    return max(1, min(affordable, useful))
