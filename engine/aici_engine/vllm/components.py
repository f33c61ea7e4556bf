"""Make and connect the components of an engine on vLLM."""

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aici_base.errors import UsageError
from aici_base.ids import SeqId, TokenId
from aici_base.tokenizer.tokens import read_vocabulary, tokenizer_file
from aici_engine.components import (
    GUESTS_AHEAD,
    MORE_GUESTS,
    MOST_GUESTS,
    EngineComponents,
    space_token,
    start_token_of,
)
from aici_engine.config import EngineConfig
from aici_engine.control.guest_time import GuestTime, GuestTimes
from aici_engine.control.runtime import ControllerRuntime
from aici_engine.control.session import GuestSession
from aici_engine.event_output import EventOutput
from aici_engine.heartbeat import Heartbeat
from aici_engine.model_files import check_model_files, read_tokenizer
from aici_engine.vllm.loop import VllmLoop
from aici_engine.vllm.options import check_request
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
) -> EngineComponents:
    """Make the components over a row engine. `model_eos`: the EOS tokens of the model's settings."""
    heartbeat = heartbeat or Heartbeat()
    path = tokenizer_file(str(config.model_dir))
    vocabulary = read_vocabulary(path.read_bytes())
    tokenizer = read_tokenizer(path)
    if runtime.vocab_size > engine.num_logits:
        raise UsageError(
            f"the controllers' vocabulary has {runtime.vocab_size} tokens, the model only {engine.num_logits}",
            hint="start the runtime with the tokenizer of the model",
        )
    eos_tokens = model_eos or frozenset({vocabulary.eos_token})
    if runtime.vocab_size:
        eos_tokens |= {runtime.eos_token}
    output = EventOutput(vocabulary.token_bytes, on_step, lambda token: tokenizer.id_to_token(token) or str(token))
    heartbeat.weight_bytes = sum(file.stat().st_size for file in config.model_dir.glob("*.safetensors"))
    heartbeat.waits = engine.is_elsewhere
    ids = itertools.count(1)

    def new_id() -> SeqId:
        return SeqId(next(ids))

    rows = RowQueue(engine, max_num_seqs=config.max_num_seqs)
    loop = VllmLoop(
        engine,
        rows=rows,
        session=GuestSession(
            runtime,
            output,
            num_logits=engine.num_logits,
            max_guests=min(config.max_num_seqs + GUESTS_AHEAD, MOST_GUESTS - MORE_GUESTS),
            more_guests=MORE_GUESTS,
            eos_tokens=eos_tokens,
            new_id=new_id,
            calm_rounds=config.calm_rounds,
            guest_time=GuestTime(time.monotonic, on_guest_time),
        ),
        output=output,
        eos_tokens=eos_tokens,
        eos_for_guests=runtime.eos_token,
        kept_eos=space_token(vocabulary.token_bytes),
        heartbeat=heartbeat,
    )
    return EngineComponents(
        loop,
        VllmPlace(),
        engine,
        tokenizer,
        new_id,
        engine.num_logits,
        min(engine.context, config.max_context or engine.context),
        eos_tokens,
        start_token_of(config.model_dir, tokenizer, vocabulary.eos_token),
        check_request,
    )
