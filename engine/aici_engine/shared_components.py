"""The components that aici's own engine and vLLM share: texts, EOS tokens, and the conversation with the guests."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aici_base.errors import UsageError
from aici_base.ids import SeqId, TokenId
from aici_base.tokenizer.tokens import read_vocabulary, tokenizer_file
from aici_engine.config import EngineConfig
from aici_engine.control.guest_time import GuestTime, GuestTimes
from aici_engine.control.runtime import ControllerRuntime
from aici_engine.control.session import GuestSession
from aici_engine.event_output import EventOutput
from aici_engine.model_files import read_settings
from aici_engine.model_tokenizer import ModelTokenizer
from aici_runtime.memory.worker_slots import NUM_WORKER_SLOTS

_GUESTS_AHEAD = 16
"""Guests that may start, or wait ready, while `max_num_seqs` sequences run."""
_MORE_GUESTS = 16
"""Places for the first guests of users without guests."""
_MOST_GUESTS = NUM_WORKER_SLOTS // 2 * 3 // 4
"""Half of the runtime's worker slots are for requests. The slot of an ended guest stays taken for a moment, hence
3/4."""


@dataclass(frozen=True, slots=True)
class SharedComponents:
    """`token_bytes`: by token, empty for special tokens. `eos_tokens`: all tokens that end a text. `kept_eos`: see
    `StepCommitter`."""

    tokenizer: ModelTokenizer
    token_bytes: list[bytes]
    output: EventOutput
    session: GuestSession
    new_id: Callable[[], SeqId]
    eos_tokens: frozenset[TokenId]
    kept_eos: TokenId | None
    start_token: TokenId


def share_components(
    config: EngineConfig,
    runtime: ControllerRuntime,
    *,
    num_logits: int,
    model_eos: frozenset[TokenId],
    on_step: Callable[[], None] | None,
    on_guest_time: Callable[[GuestTimes], None] | None,
) -> SharedComponents:
    """Make the components for a model with `num_logits` logits and the EOS tokens `model_eos`.

    Raises UsageError if the vocabulary of `runtime` is larger than the model's.
    """
    path = tokenizer_file(str(config.model_dir))
    vocabulary = read_vocabulary(path.read_bytes())
    tokenizer = ModelTokenizer(path, vocabulary.added)
    if runtime.vocab_size > num_logits:
        raise UsageError(
            f"the controllers' vocabulary has {runtime.vocab_size} tokens, the model only {num_logits}",
            hint="start the runtime with the tokenizer of the model",
        )
    eos_tokens = model_eos or frozenset({vocabulary.eos_token})
    if runtime.vocab_size:
        eos_tokens |= {runtime.eos_token}
    output = EventOutput(vocabulary.token_bytes, on_step, tokenizer.name_of)
    ids = itertools.count(1)

    def new_id() -> SeqId:
        return SeqId(next(ids))

    session = GuestSession(
        runtime,
        output,
        num_logits=num_logits,
        max_guests=min(config.max_num_seqs + _GUESTS_AHEAD, _MOST_GUESTS - _MORE_GUESTS),
        more_guests=_MORE_GUESTS,
        eos_tokens=eos_tokens,
        new_id=new_id,
        calm_rounds=config.calm_rounds,
        guest_time=GuestTime(time.monotonic, on_guest_time),
    )
    return SharedComponents(
        tokenizer,
        vocabulary.token_bytes,
        output,
        session,
        new_id,
        eos_tokens,
        _space_token(vocabulary.token_bytes),
        _start_token_of(config.model_dir, tokenizer, vocabulary.eos_token),
    )


def _start_token_of(model_dir: Path, tokenizer: ModelTokenizer, eos_token: TokenId) -> TokenId:
    """Return the model's start token; without a start token EOS, which precedes a text in training."""
    name = read_settings(model_dir / "tokenizer_config.json").get("bos_token")
    text = name.get("content") if isinstance(name, dict) else name
    token = tokenizer.token_named(text) if isinstance(text, str) else None
    return eos_token if token is None else token


def _space_token(token_bytes: list[bytes]) -> TokenId | None:
    """Return the token of a single space, which takes the place of an EOS that a controller goes on after."""
    return TokenId(token_bytes.index(b" ")) if b" " in token_bytes else None
