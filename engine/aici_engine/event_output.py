"""All events of requests are made here: tokens appended or removed, logs, scores, forks, ends."""

import logging
from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any

from aici_base.errors import AiciError
from aici_base.ids import TokenId
from aici_engine.events import (
    AcceptedEvent,
    BacktrackEvent,
    ControlEvent,
    EmbeddingEvent,
    Event,
    Explanation,
    FinishEvent,
    FinishReason,
    ForkedEvent,
    ForkEvent,
    Origin,
    ScoreEvent,
    SuspendedEvent,
    Token,
    TokenEvent,
    TokenScore,
    Usage,
)
from aici_engine.sequences.group import SequenceGroup
from aici_engine.sequences.sequence import Sequence

_log = logging.getLogger(__name__)


class EventOutput:
    """Changes the transcripts of sequences, and sends the events to the requests' sinks, on the engine's thread.

    `token_bytes[id]`: the bytes of a token, empty for special tokens; ids beyond the list have no bytes. `name_of`: the
    name of a special token. `on_step`: see `flush`. A sink that raises aborts its request.
    """

    def __init__(
        self,
        token_bytes: Seq[bytes],
        on_step: Callable[[], None] | None = None,
        name_of: Callable[[TokenId], str] = str,
    ) -> None:
        self._token_bytes = token_bytes
        self._on_step = on_step
        self._name_of = name_of
        self._told = False

    def accepted(self, seq: Sequence) -> None:
        self._tell(seq, AcceptedEvent())

    def forked(self, seq: Sequence, parent: Sequence, begin: str) -> None:
        """`begin`: the text at the beginning of the fork's stream."""
        self._tell(seq, ForkedEvent(parent.fork, begin, tuple(seq.transcript.output)))

    def sampled(self, seq: Sequence, score: TokenScore) -> None:
        self._append(seq, score, self._bytes(score.token_id), Origin.SAMPLED)

    def sampled_eos(self, seq: Sequence, score: TokenScore, *, kept_as: TokenId | None = None) -> None:
        """Append an EOS. The bytes of an EOS are no part of the text. `kept_as`: see `Sequence.append`."""
        self._append(seq, score, b"", Origin.SAMPLED, kept_as)

    def forced(self, seq: Sequence, token_ids: Seq[TokenId]) -> None:
        """Append forced tokens, up to the end of a stop string. Without room for all, end with `LENGTH`."""
        room = max(0, seq.room)
        for token_id in token_ids[:room]:
            if seq.transcript.stop is not None:
                return
            score = TokenScore(token_id)
            if seq.sampling.logprobs is not None:
                # A forced token had probability 1.
                score = TokenScore(token_id, 0.0, ((token_id, 0.0),)[: seq.sampling.logprobs])
            self._append(seq, score, self._bytes(token_id), Origin.FORCED)
        if len(token_ids) > room and seq.transcript.stop is None:
            seq.end(FinishReason.LENGTH)

    def scored(self, seq: Sequence) -> None:
        """Report the scores of the prompt if complete."""
        scores = seq.sampler.take_scores(seq.transcript.prompt_len)
        if scores is not None:
            self._tell(seq, ScoreEvent(scores))

    def embedded(self, seq: Sequence) -> None:
        """Report the vector of the prompt, which is complete."""
        assert seq.pooling is not None
        vector = seq.pooling.vector()
        assert vector is not None
        self._tell(seq, EmbeddingEvent(vector))

    def controlled(self, seq: Sequence, logs: str, storage: Seq[dict[str, Any]]) -> None:
        """Report the logs and the written variables of a guest's callback, if any."""
        if logs or storage:
            seq.transcript.logs.append(logs)
            seq.transcript.storage.extend(storage)
            self._tell(seq, ControlEvent(logs, tuple(storage)))

    def remove(self, seq: Sequence, num_tokens: int) -> None:
        """Remove the last tokens. The sequence must have so many, and a token must remain or be appended next."""
        if num_tokens:
            seq.remove(num_tokens)
            self._tell(seq, BacktrackEvent(num_tokens))

    def suspended(self, seq: Sequence) -> None:
        """Report that the guest waits for another fork, to a request that wants explanations."""
        if seq.sampling.explain is not None:
            self._tell(seq, SuspendedEvent())

    def finish(self, seq: Sequence, reason: FinishReason, error: AiciError | None) -> None:
        """Report the end of a sequence. After the last sequence of a request, send the request's terminal event."""
        group = seq.group
        end = _end(seq, reason, error)
        group.leave(seq, end)
        if seq.fork or group.members:
            self._send(group, ForkEvent(seq.fork, end))
        if not group.members:
            self._send(group, group.request_end(end.timings.total_s))

    def flush(self) -> None:
        """Call `on_step` if events were sent since the last call. Listeners may forward the events together."""
        if not self._told:
            return
        self._told = False
        if self._on_step is not None:
            try:
                self._on_step()
            except Exception:  # noqa: BLE001 the engine loop's: the failure is not a request's
                _log.exception("on_step raised")

    def _bytes(self, token_id: TokenId) -> bytes:
        return self._token_bytes[token_id] if token_id < len(self._token_bytes) else b""

    def _named(self, explanation: Explanation) -> Explanation:
        """Return the explanation with the texts of its tokens."""
        likeliest = (each._replace(text=self._text(each.token_id)) for each in explanation.likeliest)
        return explanation._replace(likeliest=tuple(likeliest))

    def _text(self, token_id: TokenId) -> str:
        return self._bytes(token_id).decode("utf-8", "replace") or self._name_of(token_id)

    def _append(
        self, seq: Sequence, score: TokenScore, data: bytes, origin: Origin, kept_as: TokenId | None = None
    ) -> None:
        explanation = score.explanation and self._named(score.explanation)
        token = Token(score.token_id, data, origin, score.logprob, score.top_logprobs, explanation)
        text = seq.append(token, kept_as=kept_as)
        seq.clock.mark_token()
        self._tell(seq, TokenEvent(token, text))

    def _tell(self, seq: Sequence, event: Event) -> None:
        self._send(seq.group, ForkEvent(seq.fork, event) if seq.fork else event)

    def _send(self, group: SequenceGroup, event: Event) -> None:
        self._told = True
        try:
            group.sink(event)
        except Exception:  # noqa: BLE001 the engine loop's: a bad sink costs its request, not the engine
            _log.exception("the sink of request %s raised: it is aborted", group.request_id)
            group.sink = _nobody
            group.end(FinishReason.ABORT)


def _end(seq: Sequence, reason: FinishReason, error: AiciError | None) -> FinishEvent:
    transcript = seq.transcript
    tail = transcript.text.finish()
    return FinishEvent(
        reason=reason,
        text=transcript.text.text,
        tail=tail,
        tokens=tuple(transcript.output),
        usage=Usage(
            prompt_tokens=transcript.num_prompt_tokens,
            sampled_tokens=transcript.num_sampled,
            ff_tokens=transcript.num_forced,
            cached_tokens=seq.progress.num_reused,
        ),
        timings=seq.clock.timings(),
        logs="".join(transcript.logs),
        storage=tuple(transcript.storage),
        error=error,
        stop=transcript.stop,
    )


def _nobody(event: Event) -> None:
    """The sink of a request after its own sink has failed."""
