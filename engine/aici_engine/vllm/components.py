"""Make and connect the components of an engine on vLLM."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aici_base.ids import TokenId
from aici_engine.components import EngineComponents
from aici_engine.config import EngineConfig
from aici_engine.control.guest_time import GuestTimes
from aici_engine.control.runtime import ControllerRuntime
from aici_engine.heartbeat import Heartbeat
from aici_engine.model_files import check_model_files
from aici_engine.shared_components import share_components
from aici_engine.vllm.loop import PROBE_S, VllmLoop
from aici_engine.vllm.request_check import check_request
from aici_engine.vllm.row_queue import RowQueue

if TYPE_CHECKING:
    from aici_engine.vllm.row_engine import RowEngine


@dataclass(frozen=True, slots=True)
class VllmPlace:
    """The null place: vLLM reports neither memory nor ranks."""

    states_size: int = 0
    memory_bytes: int = 0

    def status(self) -> Mapping[str, Any] | None:
        return None


def build_vllm(
    config: EngineConfig,
    runtime: ControllerRuntime,
    on_step: Callable[[], None] | None = None,
    heartbeat: Heartbeat | None = None,
    on_guest_time: Callable[[GuestTimes], None] | None = None,
) -> EngineComponents:
    """Load the model into vLLM and make the components.

    Raises UnavailableError without vLLM, UsageError for refused flags or a refused model.
    """
    # Imported here: vLLM takes many seconds.
    from aici_engine.vllm.llm_engine import LlmEngine

    assert config.vllm is not None
    check_model_files(config.model_dir)
    engine = LlmEngine(config, config.vllm.args)
    return connect(config, engine, engine.eos_tokens, runtime, on_step, heartbeat, on_guest_time)


def connect(
    config: EngineConfig,
    engine: "RowEngine",
    model_eos: frozenset[TokenId],
    runtime: ControllerRuntime,
    on_step: Callable[[], None] | None = None,
    heartbeat: Heartbeat | None = None,
    on_guest_time: Callable[[GuestTimes], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    probe_s: float = PROBE_S,
) -> EngineComponents:
    """Make the components over a row engine. `model_eos`: the EOS tokens of the model's settings. `clock`: see
    `EarlyGuests`; `probe_s`: see `VllmLoop`."""
    heartbeat = heartbeat or Heartbeat()
    shared = share_components(
        config,
        runtime,
        num_logits=engine.num_logits,
        model_eos=model_eos,
        on_step=on_step,
        on_guest_time=on_guest_time,
    )
    heartbeat.weight_bytes = sum(file.stat().st_size for file in config.model_dir.glob("*.safetensors"))
    heartbeat.waits = engine.is_elsewhere
    loop = VllmLoop(
        engine,
        rows=RowQueue(engine, max_num_seqs=config.max_num_seqs),
        session=shared.session,
        output=shared.output,
        eos_tokens=shared.eos_tokens,
        eos_for_guests=runtime.eos_token,
        kept_eos=shared.kept_eos,
        heartbeat=heartbeat,
        clock=clock,
        is_early=config.prefix_cache,  # without the cache, a late guest's prompt would be computed twice
        probe_s=probe_s,
    )
    return EngineComponents(
        loop,
        VllmPlace(),
        engine,
        shared.tokenizer,
        shared.new_id,
        engine.num_logits,
        min(engine.context, config.max_context or engine.context),
        shared.eos_tokens,
        shared.start_token,
        check_request,
    )
