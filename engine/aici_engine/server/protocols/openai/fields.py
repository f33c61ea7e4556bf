"""The fields that chat completions and completions share, including this server's own fields.

A field that is neither here nor in the request's class is refused by name. A null field counts as absent.
"""

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from aici_base.errors import UsageError
from aici_engine.config import MAX_PRIORITY
from aici_engine.parameter import Api
from aici_engine.sampling_params import MAX_BAD_RUNS, MAX_LOGPROBS, SamplingParams, from_request
from aici_engine.server.protocols.openai.constraint_names import ConstraintNames
from aici_engine.server.protocols.strict_body import StrictBody
from aici_engine.server.service.service import Service

MAX_SALT = 256
MAX_BAD_WORDS = MAX_BAD_RUNS // 2
"""A word has two spellings as tokens."""
_BadWord = Annotated[str, Field(min_length=1, max_length=256)]

_TOKEN = re.compile(r"0|[1-9][0-9]{0,8}")


class StreamOptions(StrictBody):
    """`continuous_usage_stats`: each chunk has the usage so far, in which a tool call counts when the answer ends."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: Literal[False] = False


class SamplingFields(StrictBody, ConstraintNames):
    """Sampling, constraint and extension fields. `user` and the fields after it are accepted without effect: they are
    labels, or hints about the speed or the price of an answer.

    `skip_special_tokens` and `spaces_between_special_tokens` are vLLM's: special tokens are never part of the text.
    """

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=128)] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None

    bad_words: Annotated[list[_BadWord], Field(max_length=MAX_BAD_WORDS)] = Field(default_factory=list)
    include_stop_str_in_output: bool = False
    return_token_ids: bool = False
    prompt_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1)] | None = None
    skip_special_tokens: Literal[True] = True
    spaces_between_special_tokens: bool = True

    cache_salt: Annotated[str, Field(min_length=1, max_length=MAX_SALT)] | None = None
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, lt=MAX_PRIORITY)] = 0

    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool = False
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None

    if TYPE_CHECKING:
        logit_bias: dict[str, float]

    @model_validator(mode="before")
    @classmethod
    def _without_old_spellings(cls, value: Any) -> Any:
        """Old clients of vLLM switch top-p off with -1."""
        if isinstance(value, dict) and value.get("top_p") == -1:
            return {name: field for name, field in value.items() if name != "top_p"}
        return value

    def sampling(self, service: Service, api: Api) -> SamplingParams:
        """Return the sampling parameters of the first of the `n` answers."""
        if self.stream_options is not None and not self.stream:
            raise UsageError("stream_options without stream", hint="set stream to true", param="stream_options")
        biases = self._biases(service.info.vocab_size)
        return from_request(api, self, logit_bias=biases, bad_tokens=self._bad_tokens(service))

    def _bad_tokens(self, service: Service) -> tuple[tuple[int, ...], ...]:
        """Return the runs of tokens that write a bad word, in the middle of a text and after a space."""
        words = [spelling for word in self.bad_words for spelling in (word, f" {word.lstrip()}")]
        runs = (service.vocabulary.encode(word, add_special_tokens=False) for word in words)
        return tuple(dict.fromkeys(tuple(run) for run in runs if run))

    def keep_last(self, service: Service) -> int | None:
        """Return how many tokens at the end of a prompt are kept; None for all. -1: as many as the context takes."""
        kept = self.truncate_prompt_tokens
        if kept == 0:
            raise UsageError("truncate_prompt_tokens is 0: a prompt has a token", param="truncate_prompt_tokens")
        return service.info.max_len - 1 if kept == -1 else kept

    def scored(self, sampling: SamplingParams) -> SamplingParams:
        """Return `sampling` with as many likeliest tokens as `prompt_logprobs` asks for."""
        if self.prompt_logprobs is None:
            return sampling
        if other := [*self.asked(), *["stream"] * self.stream]:
            raise UsageError(f"prompt_logprobs and {other[0]} together", hint="leave one out", param="prompt_logprobs")
        return replace(sampling, logprobs=max(self.prompt_logprobs, sampling.logprobs or 0))

    def _biases(self, vocab_size: int) -> dict[int, float]:
        biases: dict[int, float] = {}
        for token, bias in self.logit_bias.items():
            if not _TOKEN.fullmatch(token) or int(token) >= vocab_size:
                raise UsageError(
                    f"logit_bias has {token[:20]!r}: the keys are token numbers, 0 to {vocab_size - 1}",
                    param="logit_bias",
                )
            biases[int(token)] = bias
        return biases
