"""The fields that chat completions and completions share, including this server's own fields.

A field that is neither here nor in the request's class is refused by name. A null field counts as absent.
"""

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from aici_base.errors import UsageError
from aici_engine.config import MAX_PRIORITY
from aici_engine.parameter import Api
from aici_engine.sampling_params import SamplingParams, from_request
from aici_engine.server.protocols.constraint_fields import ConstraintFields
from aici_engine.server.service.service import Service

MAX_SALT = 256

_TOKEN = re.compile(r"0|[1-9][0-9]{0,8}")


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: field for name, field in value.items() if field is not None}
        return value


class StreamOptions(Strict):
    """`continuous_usage_stats`: each chunk has the usage so far, in which a tool call counts when the answer ends."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: Literal[False] = False


class SamplingFields(Strict, ConstraintFields):
    """Sampling, constraint and extension fields. `user` and the fields after it are accepted without effect: they are
    labels, or hints about the speed or the price of an answer."""

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=128)] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None

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
        return from_request(api, self, logit_bias=self._biases(service.info.vocab_size))

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
