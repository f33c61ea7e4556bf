"""The front door of aici: a language model, and a program in control of every token of the model.

>>> result = llm.generate("The answer is ", aici.regex(r"[0-9]{2}"))
>>> result.text.isdigit()
True

`LLM` loads a model, or talks to a server. Constraints restrict texts. Results, events and errors are plain
values. The names below are stable; everything else in this package may change. Importing is free: no model and no
torch before the first `LLM`.
"""

from aici.async_llm import AsyncLLM
from aici.async_stream import AsyncStream
from aici.chat import ChatResult
from aici.constraints import (
    Constraint,
    choice,
    controller,
    grammar,
    json_schema,
    regex,
    script,
    structural_tag,
    substring,
)
from aici.errors import (
    AiciError,
    ControllerError,
    ForbiddenError,
    InUseError,
    NotFoundError,
    QuotaError,
    RateLimitError,
    RuntimeDiedError,
    TimedOutError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    UnfinishedError,
    UnreachableError,
    UsageError,
)
from aici.llm import LLM
from aici.results import Fork, Result
from aici.stream import Stream
from aici.tools import ToolCall
from aici_engine.events import (
    AcceptedEvent,
    BacktrackEvent,
    ControlEvent,
    Event,
    Explanation,
    FinishEvent,
    FinishReason,
    ForkedEvent,
    ForkEvent,
    LikelyToken,
    Origin,
    SuspendedEvent,
    Timings,
    Token,
    TokenEvent,
    Usage,
)
from aici_engine.sampling_params import SamplingParams

__all__ = [
    "LLM",
    "AcceptedEvent",
    "AiciError",
    "AsyncLLM",
    "AsyncStream",
    "BacktrackEvent",
    "ChatResult",
    "Constraint",
    "ControlEvent",
    "ControllerError",
    "Event",
    "Explanation",
    "FinishEvent",
    "FinishReason",
    "ForbiddenError",
    "Fork",
    "ForkEvent",
    "ForkedEvent",
    "InUseError",
    "LikelyToken",
    "NotFoundError",
    "Origin",
    "QuotaError",
    "RateLimitError",
    "Result",
    "RuntimeDiedError",
    "SamplingParams",
    "Stream",
    "SuspendedEvent",
    "TimedOutError",
    "Timings",
    "Token",
    "TokenEvent",
    "TooLargeError",
    "ToolCall",
    "UnauthorizedError",
    "UnavailableError",
    "UnfinishedError",
    "UnreachableError",
    "Usage",
    "UsageError",
    "choice",
    "controller",
    "grammar",
    "json_schema",
    "regex",
    "script",
    "structural_tag",
    "substring",
]
