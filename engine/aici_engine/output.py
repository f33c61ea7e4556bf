"""What a sequence gains or loses becomes events here, and nowhere else; so does its end."""

import logging
import time
from collections.abc import Sequence as Seq

from aici_engine.events import BacktrackEvent, Event, FinishEvent, FinishReason, Origin, Timings, TokenEvent, Usage
from aici_engine.sequence import Phase, Sequence
from aici_runtime.errors import AiciError, ControllerError
from aici_runtime.ids import TokenId

_log = logging.getLogger(__name__)


class Output:
    """`token_bytes[id]`: bytes of each token, empty for special ones; ids beyond it have none."""

    def __init__(self, token_bytes: Seq[bytes]) -> None:
        self._token_bytes = token_bytes

    def sampled(self, seq: Sequence, token_id: TokenId) -> None:
        self._append(seq, token_id, Origin.SAMPLED)

    def sampled_eos(self, seq: Sequence, token_id: TokenId, *, kept_as: TokenId | None = None) -> None:
        """EOS is no part of the text, whatever bytes it has."""
        token, text = seq.append(token_id, b"", Origin.SAMPLED, kept_as=kept_as)
        self._emit(seq, TokenEvent(token, text))

    def forced(self, seq: Sequence, token_ids: Seq[TokenId]) -> None:
        """As many as there is room for."""
        for token_id in token_ids[: max(0, seq.room)]:
            self._append(seq, token_id, Origin.FORCED)

    def remove(self, seq: Sequence, num_tokens: int) -> None:
        """ControllerError if nothing would remain."""
        if num_tokens >= len(seq.tokens):
            raise ControllerError(f"the controller removed {num_tokens} tokens of a sequence of {len(seq.tokens)}")
        if num_tokens:
            seq.remove(num_tokens)
            self._tell(seq, BacktrackEvent(num_tokens))

    def finish(self, seq: Sequence, reason: FinishReason, error: AiciError | None) -> None:
        """The one terminal event."""
        now = time.monotonic()
        seq.phase = Phase.ENDED
        tail = seq.text.finish()
        self._tell(
            seq,
            FinishEvent(
                reason=reason,
                text=seq.text.text,
                tail=tail,
                tokens=tuple(seq.output),
                usage=Usage(
                    prompt_tokens=seq.num_prompt_tokens, sampled_tokens=seq.num_sampled, ff_tokens=seq.num_forced
                ),
                timings=Timings(
                    started_s=None if seq.started_at is None else seq.started_at - seq.submitted_at,
                    first_token_s=None if seq.first_token_at is None else seq.first_token_at - seq.submitted_at,
                    total_s=now - seq.submitted_at,
                ),
                logs="".join(seq.logs),
                storage=tuple(seq.storage),
                error=error,
            ),
        )

    def _append(self, seq: Sequence, token_id: TokenId, origin: Origin) -> None:
        data = self._token_bytes[token_id] if token_id < len(self._token_bytes) else b""
        token, text = seq.append(token_id, data, origin)
        self._emit(seq, TokenEvent(token, text))

    def _emit(self, seq: Sequence, event: TokenEvent) -> None:
        if seq.first_token_at is None:
            seq.first_token_at = time.monotonic()
        self._tell(seq, event)

    def _tell(self, seq: Sequence, event: Event) -> None:
        try:
            seq.sink(event)
        except Exception:  # noqa: BLE001 the engine loop's: who listens badly loses the request, not the engine
            _log.exception("the sink of request %s raised: it is aborted", seq.seq_id)
            seq.sink = _nobody
            seq.end(FinishReason.ABORT)


def _nobody(event: Event) -> None:
    """Where events go whose listener failed."""
