"""The table of sampling parameters. A parameter is declared here once: name, values, default, protocols and flag.

The fields of requests in every protocol, the flags of `aici run`, the checks and the documentation come from the
annotations of `SamplingParams`. A new parameter needs a field here, a line in `SamplingOptions` (mypy cannot derive a
TypedDict; a test compares the two), and the code of the sampler that honours it.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, TypedDict

from aici_base.errors import UsageError
from aici_engine.parameter import REQUIRED, Api, ApiField, Flag, Parameter, markdown_table, read_table

MAX_STOPS = 32
MAX_STOP_CHARS = 8192
"""Of all stop strings together: their automata are built in the engine's loop, in a millisecond at this length."""
MAX_LOGPROBS = 100
_OPENAI_LOGPROBS = 20
MAX_TOKENS = 1 << 31
MAX_STOP_TOKENS = 128
MAX_BAD_RUNS = 1024
_INT64 = 1 << 63
_MAX_BIAS = 1e30
"""Far enough from the end of f32 for sums."""
_GREEDY_BELOW = 1e-5
"""Below this temperature, dividing logits by the temperature overflows f32."""
_AS_OPENAI = "the protocol's default"
_PLAIN_ANSWER = "the protocol's default: the same request gives the same answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is drawn: `logit_bias`, the controller's mask, then the steps in the order of the fields.

    >>> params = aici.SamplingParams(temperature=0.7, top_p=0.9, max_tokens=100, stop=("\\n",), seed=1)
    >>> text = llm.generate("Once upon a time", sampling=params).text

    `repetition_penalty` divides (or multiplies) the logits of tokens in the prompt or the output; `presence_penalty`
    and `frequency_penalty` are subtracted for tokens of the output, the latter times their count. `temperature` 0 is
    greedy. `top_k` 0 or -1, `top_p` 1 and `min_p` 0 switch those steps off. Without `seed` each run differs.
    `max_tokens` bounds the output, forced tokens included; None: the rest of the context; 0: nothing is generated.

    `stop`: the output's text ends before the first stop string, and generation ends with it. The stop string that is
    complete first wins; among stop strings that end at the same place, the longest. The cuts between tokens do not
    matter. `logit_bias` is added to the logits of its tokens. `ignore_eos`: without a controller, generation goes on
    after EOS.

    `logprobs` k: report the log-probability of each output token, and the k likeliest tokens. The log-probability is
    the log-softmax, in natural logarithms, of the logits after bias and mask, before penalties, temperature, top-k,
    top-p and min-p. A forced token has 0.0. Only allowed tokens are listed, so all log-probabilities are finite.
    None: no log-probability is computed.

    `explain` k: report how each sampled token came about: how many tokens the mask allowed, and the k likeliest tokens
    before the mask (`Token.explanation`). None: no explanation is computed.

    `min_tokens`: neither EOS nor a stop token is drawn before so many tokens of output. `stop_token_ids`: any of these
    tokens ends the output, and is no part of the text. `bad_tokens`: no run of these tokens is completed in prompt and
    output, as transformers' `bad_words_ids`. These three do not go with a controller.

    Raises UsageError for a value out of range; `param` is the name of the field.
    """

    repetition_penalty: Annotated[
        float,
        Parameter(
            help="Divide (or multiply) the logits of tokens in the prompt or the output by this number.",
            why="1 changes nothing",
            gt=0,
            openai_chat=ApiField(other_name="repeat_penalty", le=100),
            openai_completions=ApiField(other_name="repeat_penalty", le=100),
            openai_responses=ApiField(le=100),
            rest=ApiField(),
            lmtp=ApiField(),
        ),
    ] = 1.0
    presence_penalty: Annotated[
        float,
        Parameter(
            help="Subtract this number from the logits of tokens in the output.",
            why="0 changes nothing",
            ge=-2,
            le=2,
            openai_chat=ApiField(),
            openai_completions=ApiField(),
            openai_responses=ApiField(),
            rest=ApiField(),
            lmtp=ApiField(),
        ),
    ] = 0.0
    frequency_penalty: Annotated[
        float,
        Parameter(
            help="Subtract this number from the logits of tokens in the output, once for each occurrence.",
            why="0 changes nothing",
            ge=-2,
            le=2,
            openai_chat=ApiField(),
            openai_completions=ApiField(),
            openai_responses=ApiField(),
            rest=ApiField(),
            lmtp=ApiField(),
        ),
    ] = 0.0
    temperature: Annotated[
        float,
        Parameter(
            help="Divide the logits by this number; 0 takes the likeliest token each time.",
            why="1 draws from the model's own distribution",
            ge=0,
            wanted="0 (greedy) or above",
            openai_chat=ApiField(le=100),
            openai_completions=ApiField(le=100),
            openai_responses=ApiField(le=100),
            anthropic=ApiField(le=1),
            rest=ApiField(default=0.0, why=_PLAIN_ANSWER),
            lmtp=ApiField(default=0.0, why=_PLAIN_ANSWER),
            flag=Flag(help="0 takes the likeliest token each time.", default=0.0),
        ),
    ] = 1.0
    top_k: Annotated[
        int,
        Parameter(
            help="Sample among the k likeliest tokens; 0 or -1: among all.",
            why="as transformers' generate",
            ge=-1,
            wanted="a whole number from 1, or 0 or -1 to switch it off",
            off=(0, -1),
            is_moot_if_greedy=True,
            openai_chat=ApiField(default=0, why="the protocol has no top-k", le=MAX_TOKENS),
            openai_completions=ApiField(default=0, why="the protocol has no top-k", le=MAX_TOKENS),
            openai_responses=ApiField(default=0, why="the protocol has no top-k", le=MAX_TOKENS),
            anthropic=ApiField(default=0, why=_AS_OPENAI, ge=0, le=MAX_TOKENS),
            rest=ApiField(default=-1, why=_AS_OPENAI),
            lmtp=ApiField(default=0, why="the protocol has no top-k", lt=MAX_TOKENS),
            flag=Flag(help="Sample among the K likeliest tokens; 0: among all.", default=0),
        ),
    ] = 50
    top_p: Annotated[
        float,
        Parameter(
            help="Sample among the likeliest tokens whose probabilities add up to this number.",
            why="1 changes nothing",
            gt=0,
            le=1,
            is_moot_if_greedy=True,
            openai_chat=ApiField(),
            openai_completions=ApiField(),
            openai_responses=ApiField(),
            anthropic=ApiField(),
            rest=ApiField(),
            lmtp=ApiField(),
            flag=Flag(help="Sample among the likeliest tokens of this total."),
        ),
    ] = 1.0
    min_p: Annotated[
        float,
        Parameter(
            help="Drop tokens whose probability is below this fraction of the likeliest token's.",
            why="0 changes nothing",
            ge=0,
            le=1,
            is_moot_if_greedy=True,
            openai_chat=ApiField(),
            openai_completions=ApiField(),
            openai_responses=ApiField(),
            rest=ApiField(),
            lmtp=ApiField(),
        ),
    ] = 0.0
    seed: Annotated[
        int | None,
        Parameter(
            help="The same seed gives the same text.",
            why="each run differs",
            openai_chat=ApiField(ge=-_INT64, lt=_INT64),
            openai_completions=ApiField(ge=-_INT64, lt=_INT64),
            openai_responses=ApiField(ge=-_INT64, lt=_INT64),
            rest=ApiField(),
            lmtp=ApiField(ge=0, lt=_INT64),
            flag=Flag(),
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        Parameter(
            help="End the output after this many tokens, forced tokens included.",
            why="the rest of the context",
            ge=0,
            openai_chat=ApiField(other_name="max_completion_tokens", ge=1, le=MAX_TOKENS),
            openai_completions=ApiField(default=16, why=_AS_OPENAI, le=MAX_TOKENS),
            openai_responses=ApiField(name="max_output_tokens", ge=1, le=MAX_TOKENS),
            anthropic=ApiField(default=REQUIRED, le=MAX_TOKENS),
            rest=ApiField(ge=1),
            lmtp=ApiField(default=32, why=_AS_OPENAI, ge=1, lt=MAX_TOKENS),
            flag=Flag(help="Stop after this many tokens (default: 256; of a script or a chat: the context).", ge=1),
        ),
    ] = None
    stop: Annotated[
        tuple[str, ...],
        Parameter(
            help="End the output before the first of these texts.",
            why="no text ends the output",
            max_items=MAX_STOPS,
            max_chars=MAX_STOP_CHARS,
            openai_chat=ApiField(max_items=16, one_alone=True),
            openai_completions=ApiField(max_items=16, one_alone=True),
            openai_responses=ApiField(max_items=16, one_alone=True),
            # The mark of a tool call is a stop string too.
            anthropic=ApiField(name="stop_sequences", max_items=MAX_STOPS - 1),
            rest=ApiField(),
            flag=Flag(help="End before this text, or that of another --stop.", metavar="<str>"),
        ),
    ] = ()
    logit_bias: Annotated[
        Mapping[int, float],
        Parameter(
            help="Add these numbers to the logits of their tokens.",
            why="no token is favoured",
            ge=-_MAX_BIAS,
            le=_MAX_BIAS,
            openai_chat=ApiField(ge=-100, le=100),
            openai_completions=ApiField(ge=-100, le=100),
            rest=ApiField(),
            lmtp=ApiField(),
        ),
    ] = field(default_factory=dict, hash=False)
    logprobs: Annotated[
        int | None,
        Parameter(
            help="Report the log-probability of each token, and this many of the likeliest tokens.",
            why="log-probabilities take time",
            ge=0,
            le=MAX_LOGPROBS,
            openai_chat=ApiField(name="top_logprobs", le=_OPENAI_LOGPROBS),
            openai_completions=ApiField(le=_OPENAI_LOGPROBS),
            openai_responses=ApiField(name="top_logprobs", le=_OPENAI_LOGPROBS),
            rest=ApiField(),
            lmtp=ApiField(name="top_logprobs", default=1, why=_AS_OPENAI),
            flag=Flag(help="With --json: log-probabilities, and the K likeliest tokens; 0: none of these."),
        ),
    ] = None
    explain: Annotated[
        int | None,
        Parameter(
            help="Report how many tokens the mask allowed, and this many of the likeliest tokens before the mask.",
            why="explanations take time",
            ge=0,
            le=MAX_LOGPROBS,
            rest=ApiField(),
        ),
    ] = None
    ignore_eos: Annotated[
        bool,
        Parameter(
            help="Go on after the end-of-text token; not with a controller.",
            why="a text ends where the model ends it",
            openai_chat=ApiField(),
            openai_completions=ApiField(),
            openai_responses=ApiField(),
            rest=ApiField(),
        ),
    ] = False
    min_tokens: Annotated[
        int,
        Parameter(
            help="Draw no end-of-text token and no stop token before this many tokens; not with a controller.",
            why="a text ends where the model ends it",
            ge=0,
            openai_chat=ApiField(le=MAX_TOKENS),
            openai_completions=ApiField(le=MAX_TOKENS),
            rest=ApiField(),
        ),
    ] = 0
    stop_token_ids: Annotated[
        tuple[int, ...],
        Parameter(
            help="End the output at any of these tokens; not with a controller.",
            why="a text ends where the model ends it",
            max_items=MAX_STOP_TOKENS,
            openai_chat=ApiField(),
            openai_completions=ApiField(),
            rest=ApiField(),
        ),
    ] = ()
    bad_tokens: Annotated[
        tuple[tuple[int, ...], ...],
        Parameter(
            help="Complete none of these runs of tokens; not with a controller.",
            why="no text is forbidden",
            max_items=MAX_BAD_RUNS,
            rest=ApiField(),
        ),
    ] = ()

    def __post_init__(self) -> None:
        for name, parameter in PARAMETERS.items():
            parameter.check(getattr(self, name))

    @property
    def greedy(self) -> bool:
        return self.temperature < _GREEDY_BELOW

    @property
    def bans(self) -> bool:
        """Whether `sample.bans` may close tokens."""
        return bool(self.min_tokens or self.bad_tokens)

    @property
    def penalizes(self) -> bool:
        return self.repetition_penalty != 1.0 or bool(self.presence_penalty or self.frequency_penalty)


class SamplingOptions(TypedDict, total=False):
    """The fields of SamplingParams, as keywords. `stop` may also be a list, or one text."""

    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int | None
    max_tokens: int | None
    stop: str | Sequence[str]
    logit_bias: Mapping[int, float]
    logprobs: int | None
    explain: int | None
    ignore_eos: bool
    min_tokens: int
    stop_token_ids: tuple[int, ...]
    bad_tokens: tuple[tuple[int, ...], ...]


PARAMETERS: Final[Mapping[str, Parameter]] = read_table(SamplingParams)
"""The parameters by name, in the order of the fields."""


def from_options(options: Mapping[str, Any], *, base: SamplingParams | None = None) -> SamplingParams:
    """Return `base`, or the defaults, with the fields of a SamplingOptions in place of its own.

    Raises UsageError for an unknown name; `param` is the name, and the hint has the nearest name.

    >>> from_options({"temperature": 0.5, "stop": "."}).stop
    ('.',)
    """
    for name in options:
        if name not in PARAMETERS:
            near = difflib.get_close_matches(name, PARAMETERS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(PARAMETERS)}"
            raise UsageError(f"there is no sampling parameter {name}", hint=hint, param=name)
    fields = dict(options)
    if isinstance(stop := fields.get("stop"), Iterable):
        fields["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
    return replace(base or SamplingParams(), **fields)


def from_request(api: Api, request: object, **given: Any) -> SamplingParams:
    """Return the parameters of a request, whose attributes have the names of the protocol's fields.

    `given` stands in place of fields that the protocol reads in a way of its own. Raises UsageError; `param` is the
    protocol's name of the field.
    """
    values: dict[str, Any] = dict(given)
    names: dict[str, str] = {}
    for name, parameter in PARAMETERS.items():
        if (declared := parameter.field(api)) is not None:
            names[name] = declared.name
            if name not in given:
                value = _value_of(request, declared)
                values[name] = _frozen(value)
    try:
        return SamplingParams(**values)
    except UsageError as error:
        name = error.param
        if names.get(name, name) != name:
            PARAMETERS[name].check(values[name], name=names[name])
        raise


def _frozen(value: Any) -> Any:
    """Return a list of JSON, and the lists inside of it, as tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _value_of(request: object, field: ApiField) -> Any:
    given = [(name, value) for name in field.names if (value := getattr(request, name)) != field.default]
    if any(value != given[0][1] for _, value in given):
        names = " and ".join(name for name, _ in given)
        raise UsageError(f"{names} together, with different values", hint="leave one out", param=field.name)
    return given[0][1] if given else field.default


def to_request(api: Api, params: SamplingParams) -> dict[str, Any]:
    """Return the fields of a request that asks for `params`: those whose value differs from the protocol's default.

    Parameters that the protocol does not have are left out, and at temperature 0 those without effect.

    >>> to_request(Api.ANTHROPIC, SamplingParams(temperature=0.5, top_k=0, max_tokens=8, stop=("a",)))
    {'temperature': 0.5, 'max_tokens': 8, 'stop_sequences': ['a']}
    """
    fields: dict[str, Any] = {}
    for name, parameter in PARAMETERS.items():
        declared, value = parameter.field(api), getattr(params, name)
        if declared is None or (params.greedy and parameter.is_moot_if_greedy):
            continue
        is_default = value == declared.default or (value in parameter.off and declared.default in parameter.off)
        if not is_default:
            fields[declared.name] = list(value) if isinstance(value, tuple) else value
    return fields


def markdown() -> str:
    """Return the table as Markdown, for the documentation."""
    return markdown_table(PARAMETERS.values())
