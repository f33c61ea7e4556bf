"""What chats and completions ask alike: how to sample, where to stop, what the text must be. Extensions included.

What is not here, and not in the request that inherits it, is refused by name. `null` is as good as nothing.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from aici_base.errors import UsageError
from aici_engine.config import MAX_PRIORITY, SamplingParams
from aici_engine.server.errors import ParameterError
from aici_engine.server.protocols.constraint_fields import ConstraintFields
from aici_engine.server.service.service import Service

MAX_TOKENS = 1 << 31
MAX_SALT = 256
_INT64 = 1 << 63

_TOKEN = re.compile(r"0|[1-9][0-9]{0,8}")


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: field for name, field in value.items() if field is not None}
        return value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Stops = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    Field(max_length=16),
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
]


class StreamOptions(Strict):
    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class SamplingFields(Strict, ConstraintFields):
    """The last five change nothing that is said, and nothing is kept of them."""

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=128)] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    seed: Annotated[int, Field(ge=-_INT64, lt=_INT64)] | None = None
    stop: Stops = []
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] = {}

    top_k: Annotated[int, Field(ge=-1, le=MAX_TOKENS)] = 0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] = 1.0
    ignore_eos: bool = False
    cache_salt: Annotated[str, Field(min_length=1, max_length=MAX_SALT)] | None = None
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, lt=MAX_PRIORITY)] = 0

    user: str | None = None
    metadata: dict[str, str] | None = None
    store: Literal[False] = False
    service_tier: Literal["auto", "default"] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    def sampling(self, service: Service, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        """Of the first of the `n`."""
        if self.stream_options is not None and not self.stream:
            raise ParameterError("stream_options", "stream_options without stream", hint="set stream to true")
        try:
            return SamplingParams(
                repetition_penalty=self.repetition_penalty,
                presence_penalty=self.presence_penalty,
                frequency_penalty=self.frequency_penalty,
                temperature=self.temperature,
                top_k=self.top_k,
                top_p=self.top_p,
                min_p=self.min_p,
                seed=self.seed,
                max_tokens=max_tokens,
                stop=tuple(self.stop),
                logit_bias=self._biases(service.info.vocab_size),
                logprobs=logprobs,
                ignore_eos=self.ignore_eos,
            )
        except ParameterError:
            raise
        except UsageError as error:
            raise ParameterError(error.message.split()[0], error.message, hint=error.hint) from error

    def _biases(self, vocab_size: int) -> dict[int, float]:
        biases: dict[int, float] = {}
        for token, bias in self.logit_bias.items():
            if not _TOKEN.fullmatch(token) or int(token) >= vocab_size:
                raise ParameterError(
                    "logit_bias", f"logit_bias has {token[:20]!r}: its keys are tokens, 0 to {vocab_size - 1}"
                )
            biases[int(token)] = bias
        return biases
