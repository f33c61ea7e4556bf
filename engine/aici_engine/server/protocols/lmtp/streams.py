"""Runs GENERATE and SCORE: a message becomes a sequence, and the sequence's events become items."""

from collections.abc import Callable

from msgspec import UNSET, Raw
from pydantic import ValidationError

from aici_base.errors import AiciError, UsageError
from aici_engine.events import FinishReason
from aici_engine.parameter import Api
from aici_engine.sampling_params import SamplingParams, from_request
from aici_engine.server.link import wire
from aici_engine.server.link.stream import EngineStream
from aici_engine.server.protocols.constraint_fields import ConstraintFields, controller_call
from aici_engine.server.protocols.lmtp.messages import BacktrackItem, Generate, Score, TokenItem
from aici_engine.server.protocols.lmtp.prompts import Parts, tokens_of
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Generation, Service
from aici_engine.text_stream import TextStream

Say = Callable[[TokenItem | BacktrackItem], None]
"""Sends an item, but not the stream's last item. An error that it raises ends the stream."""
Queued = Callable[[Raw, int], None]
"""Reports a stream that must wait: (stream id, position in the queue). Position 1 is next."""


class StreamRunner:
    """Runs the streams of one connection. Every method appends the tokens of prompt and output to `tokens`."""

    def __init__(self, service: Service, principal: Principal, *, say: Say, queued: Queued) -> None:
        self._service = service
        self._principal = principal
        self._say = say
        self._queued = queued

    async def generate(self, message: Generate, prompt: Parts, tokens: list[int]) -> TokenItem:
        """Run a GENERATE stream. Send all items but the last, and return the last item.

        Raises AiciError if the stream fails. Removes `logit_bias` from `message`: a bias may have megabytes, and a
        stream may run for long.
        """
        controller = await controller_call(self._service, self._principal, _constraint(message))
        tokens += await tokens_of(prompt, self._service)
        max_tokens = min(message.max_tokens, max(1, self._service.info.max_len - len(tokens)))
        bias, message.logit_bias = self._bias(message.logit_bias or {}), None
        sampling = from_request(Api.LMTP, message, max_tokens=max_tokens, logit_bias=bias)
        async with (
            self._service.admit(self._principal, 1),
            self._service.start(
                self._principal, Generation(prompt=list(tokens), sampling=sampling, controller=controller)
            ) as stream,
        ):
            del sampling, bias
            self._tell_queued(message.stream_id)
            eos_token = self._service.vocabulary.eos_token
            last = await _generated(message, stream, max_tokens, eos_token, tokens, self._say)
            if controller is not None and controller.warnings:
                last.warnings = controller.warnings
            return last

    async def score(self, message: Score, prompt: Parts, scored: Parts, tokens: list[int]) -> TokenItem:
        """Run a SCORE stream. Send all items but the last, and return the last item. Raises AiciError on failure."""
        tokens += await tokens_of(prompt, self._service)
        start = len(tokens)
        # The scored text continues the prompt, so it gets no special tokens.
        tokens += await tokens_of([scored] if isinstance(scored, str) else scored, self._service)
        if len(tokens) == start:
            raise UsageError("scored has no tokens")
        generation = Generation(
            prompt=list(tokens), sampling=SamplingParams(max_tokens=0), score_from=start, is_whole=True
        )
        async with self._service.open(self._principal, [generation]) as [stream]:
            self._tell_queued(message.stream_id)
            return await _scored(message, stream, self._service, self._say)

    def _tell_queued(self, stream_id: Raw) -> None:
        waiting = self._service.admission.num_admitted - self._service.info.max_num_seqs
        if waiting > 0:
            self._queued(stream_id, waiting)

    def _bias(self, bias: dict[int, float]) -> dict[int, float]:
        """Return the bias for the engine.

        Tokens outside the model's vocabulary are dropped: LMQL's tokenizers have such tokens, and the model never
        samples them. A client knows one end-of-text token, so the bias of that token goes to all of them.
        """
        info, eos_token = self._service.info, self._service.vocabulary.eos_token
        known = {token: value for token, value in bias.items() if token < info.vocab_size}
        if not known and any(value > 0.0 for value in bias.values()):
            raise UsageError(f"logit_bias favours only tokens that the model does not have: it has {info.vocab_size}")
        if (value := known.get(eos_token)) is not None:
            known = dict.fromkeys(info.eos_tokens, value) | known
        return known


def _constraint(message: Generate) -> ConstraintFields:
    try:
        return ConstraintFields(**{name: getattr(message, name) for name in ConstraintFields.model_fields})
    except ValidationError as error:  # of schema_options, the only field that msgspec has not checked
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UsageError(f"{field}: {first['msg']}", param=field) from error


async def _generated(
    message: Generate, stream: EngineStream, max_tokens: int, eos_token: int, tokens: list[int], say: Say
) -> TokenItem:
    """Send a stream's items and return the last item.

    The last item must have a finish reason, else the client waits for ever. A token that may be the last is therefore
    held back until the next event; if the token is the last, the finish event arrives at once.
    """
    prompt_len = len(tokens)
    last: TokenItem | None = None
    async for event in stream:
        if last is not None and isinstance(event, wire.TokenOut | wire.BacktrackOut):
            say(last)
            last = None
        if isinstance(event, wire.BacktrackOut):
            say(BacktrackItem(stream_id=message.stream_id, backtrack=event.num_tokens))
            del tokens[-event.num_tokens :]
        elif isinstance(event, wire.TokenOut):
            last = _item(message, event)
            tokens.append(event.token)
            if event.data and len(tokens) - prompt_len != max_tokens:
                say(last)
                last = None
    finish = stream.result()
    if finish.reason is FinishReason.EOS and last is not None:
        tokens.pop()
        _call_eos(last, eos_token)
    elif finish.reason is FinishReason.STOP:
        # The controller ended the text. For the client, a text ends with the end-of-text token.
        if last is not None:
            say(last)
        text = "" if message.wants_text else UNSET
        top = {eos_token: 0.0}
        last = TokenItem(token=eos_token, stream_id=message.stream_id, logprob=0.0, top_logprobs=top, text=text)
    if last is None:
        raise AiciError(f"the sequence ended without a last token: {finish.reason}")
    last.finish_reason = "length" if finish.reason is FinishReason.LENGTH else "stop"
    if last.text is not UNSET:
        last.text += finish.tail
    return last


def _item(message: Generate, event: wire.TokenOut) -> TokenItem:
    logprob = 0.0 if event.logprob is None else event.logprob
    return TokenItem(
        token=event.token,
        stream_id=message.stream_id,
        logprob=logprob,
        top_logprobs={event.token: logprob} | dict(event.top),
        text=event.text if message.wants_text else UNSET,
    )


def _call_eos(item: TokenItem, eos_token: int) -> None:
    """Replace the token by the tokenizer's EOS token: a client knows no other token that ends a text."""
    if item.token != eos_token and item.top_logprobs is not UNSET:
        others = {t: p for t, p in item.top_logprobs.items() if t not in (item.token, eos_token)}
        item.top_logprobs = {eos_token: item.logprob} | others
    item.token = eos_token


async def _scored(message: Score, stream: EngineStream, service: Service, say: Say) -> TokenItem:
    text = TextStream()
    items: list[TokenItem] = []
    async for event in stream:
        if isinstance(event, wire.ScoreOut):
            for token, logprob, _ in event.scores:
                # The first token of a sequence has no log-probability: no token comes before it.
                item = TokenItem(token=token, stream_id=message.stream_id, logprob=0.0 if logprob is None else logprob)
                if message.wants_text:
                    item.text = text.push(service.vocabulary.bytes_of(token))
                items.append(item)
    stream.result()
    *others, last = items
    for item in others:
        say(item)
    last.finish_reason = "stop"
    if last.text is not UNSET:
        last.text += text.finish()
    return last
