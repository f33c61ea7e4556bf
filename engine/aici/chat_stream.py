"""A turn of a chat under a constraint: a single generation on any backend."""

from aici.backend import Backend, Call, Cancel, ChatCall, ChatOutcome
from aici.constraints import UNCONSTRAINED
from aici.stream import Stream
from aici_engine.events import FinishReason


def constrained_chat(backend: Backend, call: ChatCall, cancel: Cancel) -> ChatOutcome:
    """Run a turn with a constraint, and therefore without tools, to the end."""
    request = Call(prompt=call.messages, sampling=call.sampling, constraint=call.constraint)
    with Stream(backend, request, call.messages, UNCONSTRAINED) as stream, cancel.covering(stream.close):
        result = stream.result()
    if result.error is not None:
        raise result.error
    return ChatOutcome(
        text=result.text,
        calls=(),
        finish_reason="length" if result.finish_reason is FinishReason.LENGTH else "stop",
        prompt_tokens=result.usage.prompt_tokens,
        output_tokens=result.usage.sampled_tokens + result.usage.ff_tokens,
    )
