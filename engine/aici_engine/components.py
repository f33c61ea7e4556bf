"""Make the components of an engine and connect them."""

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tokenizers import Tokenizer

from aici_base.errors import UsageError
from aici_base.ids import SeqId, TokenId
from aici_base.tokenizer.tokens import read_vocabulary, tokenizer_file
from aici_engine.cache.kvcache import KVCache
from aici_engine.config import EngineConfig
from aici_engine.control.guest_time import GuestTime, GuestTimes
from aici_engine.control.runtime import ControllerRuntime
from aici_engine.control.session import GuestSession
from aici_engine.event_output import EventOutput
from aici_engine.executor import Executor
from aici_engine.heartbeat import Heartbeat
from aici_engine.local_executor import LocalExecutor
from aici_engine.loop import Loop
from aici_engine.model.compute_device import ComputeDevice, choose_device, has_gpu
from aici_engine.model_files import check_model_files, read_settings, read_tokenizer
from aici_engine.native.backend import make_model
from aici_engine.native.library import load
from aici_engine.prefill_budget import PrefillBudget
from aici_engine.sample.masks import MaskApplier
from aici_engine.sample.native import NativeSampling
from aici_engine.sample.sampler import HostSampler, Sampler
from aici_engine.scheduler import Scheduler
from aici_runtime.memory.worker_slots import NUM_WORKER_SLOTS

if TYPE_CHECKING:
    from aici_engine.engine_loop import EngineLoop
    from aici_engine.model.interface import Model
    from aici_engine.request import Request


GUESTS_AHEAD = 16
"""Guests that may start, or wait ready, while `max_num_seqs` sequences run."""
MORE_GUESTS = 16
"""Places for the first guests of users who have none."""
MOST_GUESTS = NUM_WORKER_SLOTS // 2 * 3 // 4
"""Half of the runtime's worker slots are for requests. The slot of an ended guest stays taken for a moment, hence
3/4."""


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
    tokenizer: Tokenizer
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
) -> EngineComponents:
    """Load the model and make the components.

    Raises UsageError if the folder cannot be served, or does not fit the vocabulary of `runtime`.
    """
    check_model_files(config.model_dir)
    compute = choose_device(config, has_gpu=config.device != "cpu" and has_gpu())
    executor = make_executor(config, compute)
    try:
        return _connect(config, executor, runtime, on_step, heartbeat or Heartbeat(), on_guest_time)
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
) -> EngineComponents:
    path = tokenizer_file(str(config.model_dir))
    vocabulary = read_vocabulary(path.read_bytes())
    tokenizer = read_tokenizer(path)
    if runtime.vocab_size > executor.vocab_size:
        raise UsageError(
            f"the controllers' vocabulary has {runtime.vocab_size} tokens, the model only {executor.vocab_size}",
            hint="start the runtime with the tokenizer of the model",
        )
    num_pages, page_size = executor.num_pages, executor.page_size
    cache = KVCache(num_pages=num_pages, page_size=page_size, prefix_cache=config.prefix_cache)
    eos_tokens = executor.eos_tokens or frozenset({vocabulary.eos_token})
    if runtime.vocab_size:
        eos_tokens |= {runtime.eos_token}
    output = EventOutput(vocabulary.token_bytes, on_step, lambda token: tokenizer.id_to_token(token) or str(token))
    heartbeat.weight_bytes, heartbeat.waits = executor.memory_bytes, executor.waits
    ids = itertools.count(1)

    def new_id() -> SeqId:
        return SeqId(next(ids))

    loop = Loop(
        executor=executor,
        cache=cache,
        scheduler=Scheduler(
            cache,
            max_num_seqs=config.max_num_seqs,
            max_batch_tokens=config.max_batch_tokens,
            prefill_budget=PrefillBudget(config.prefill_slowdown),
            depth=executor.depth,
        ),
        session=GuestSession(
            runtime,
            output,
            num_logits=executor.vocab_size,
            max_guests=min(config.max_num_seqs + GUESTS_AHEAD, MOST_GUESTS - MORE_GUESTS),
            more_guests=MORE_GUESTS,
            eos_tokens=eos_tokens,
            new_id=new_id,
            calm_rounds=config.calm_rounds,
            guest_time=GuestTime(time.monotonic, on_guest_time),
        ),
        sampler=_sampler(runtime, eos_tokens, executor.vocab_size, executor.device),
        output=output,
        eos_tokens=eos_tokens,
        eos_for_guests=runtime.eos_token,
        kept_eos=space_token(vocabulary.token_bytes),
        replay_timeout_s=config.replay_timeout_s,
        heartbeat=heartbeat,
    )
    max_len = min(_context(config, executor.context), num_pages * page_size)
    start_token = start_token_of(config.model_dir, tokenizer, vocabulary.eos_token)
    return EngineComponents(
        loop, executor, cache, tokenizer, new_id, executor.vocab_size, max_len, eos_tokens, start_token
    )


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
    sampler = HostSampler(masks) if native is None else HostSampler(masks, native.choose, native.log_softmax)
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
    return DeviceSampler(sampler, there, torch.device(device))


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
    num_pages = config.num_pages or _num_pages(config, compute, model)
    return LocalExecutor(model, num_pages=num_pages, page_size=compute.page_size)


def _context(config: EngineConfig, context: int) -> int:
    """Return the positions to serve of a model with `context` positions."""
    return min(context, config.max_context or context)


def _num_pages(config: EngineConfig, compute: ComputeDevice, model: "Model") -> int:
    page_bytes = model.token_bytes * compute.page_size
    free_bytes = config.memory_fraction * compute.free_bytes()
    affordable = int(min(free_bytes, config.cache_bytes or free_bytes) / page_bytes)
    useful = config.max_num_seqs * -(-_context(config, model.context) // compute.page_size)
    return max(1, min(affordable, useful))


def start_token_of(model_dir: Path, tokenizer: Tokenizer, eos_token: TokenId) -> TokenId:
    """Return the model's start token; without a start token EOS, which precedes a text in training."""
    name = read_settings(model_dir / "tokenizer_config.json").get("bos_token")
    text = name.get("content") if isinstance(name, dict) else name
    token = tokenizer.token_to_id(text) if isinstance(text, str) else None
    return eos_token if token is None else TokenId(token)


def space_token(token_bytes: list[bytes]) -> TokenId | None:
    """Return the token of a single space, which takes the place of an EOS that a controller goes on after."""
    return TokenId(token_bytes.index(b" ")) if b" " in token_bytes else None
