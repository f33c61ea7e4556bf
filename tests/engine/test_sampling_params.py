"""The table of sampling parameters: what the fields of SamplingParams declare, and what is made of it."""

from collections.abc import Sequence
from typing import Any, get_type_hints

import pytest

from aici_base.errors import UsageError
from aici_engine.parameter import REQUIRED, Api
from aici_engine.sampling_params import (
    PARAMETERS,
    SamplingOptions,
    SamplingParams,
    from_options,
    from_request,
    markdown,
    to_request,
)

BAD: dict[str, Any] = {
    "repetition_penalty": 0,
    "presence_penalty": 2.5,
    "frequency_penalty": float("nan"),
    "temperature": float("inf"),
    "top_k": 1.5,
    "top_p": 0.0,
    "min_p": "0",
    "seed": 0.5,
    "max_tokens": -1,
    "stop": ("a", ""),
    "logit_bias": {1: 1e31},
    "logprobs": 101,
    "explain": 101,
    "ignore_eos": 1,
    "min_tokens": -1,
    "stop_token_ids": (1, -1),
    "bad_tokens": ((1,), ()),
}
GOOD: dict[str, Any] = {
    "repetition_penalty": 1.5,
    "presence_penalty": -2,
    "frequency_penalty": 2.0,
    "temperature": 0.25,
    "top_k": -1,
    "top_p": 0.5,
    "min_p": 1,
    "seed": 1 << 40,
    "max_tokens": 0,
    "stop": ("a", "b"),
    "logit_bias": {1: -5.5},
    "logprobs": 100,
    "explain": 100,
    "ignore_eos": True,
    "min_tokens": 3,
    "stop_token_ids": (1, 2),
    "bad_tokens": ((1, 2), (3,)),
}


def test_options_are_the_fields() -> None:
    fields = get_type_hints(SamplingParams)
    assert get_type_hints(SamplingOptions) == fields | {"stop": str | Sequence[str]}


def test_options_take_the_place_of_fields() -> None:
    base = SamplingParams(temperature=0.5, stop=("a",))
    assert from_options({}, base=base) == base
    assert from_options({"stop": "b", "top_k": 1}, base=base) == SamplingParams(temperature=0.5, top_k=1, stop=("b",))
    assert from_options({"stop": ["b", "c"]}).stop == ("b", "c")
    with pytest.raises(UsageError, match="topp") as caught:
        from_options({"topp": 1})
    assert (caught.value.param, caught.value.hint) == ("topp", "did you mean top_p?")


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_value_out_of_range_is_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=name) as caught:
        SamplingParams(**{name: BAD[name]})
    assert caught.value.param == name
    assert name in caught.value.hint
    assert getattr(SamplingParams(**{name: GOOD[name]}), name) == GOOD[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_default_is_a_value_that_each_protocol_takes(name: str) -> None:
    parameter = PARAMETERS[name]
    parameter.check(parameter.default)
    for api in Api:
        field = parameter.field(api)
        if field is not None and field.default is not REQUIRED:
            parameter.check(field.default)


@pytest.mark.parametrize("name", PARAMETERS)
def test_each_says_what_it_does_and_why_it_has_its_default(name: str) -> None:
    parameter = PARAMETERS[name]
    assert parameter.help.endswith(".")
    assert parameter.why
    for api in Api:
        field = parameter.field(api)
        assert field is None or field.default in (parameter.default, REQUIRED) or field.why, api


class Body:
    """A request in some protocol: the defaults, and what is set."""

    def __init__(self, api: Api, **fields: Any) -> None:
        for parameter in PARAMETERS.values():
            if (field := parameter.field(api)) is not None:
                self.__dict__.update(dict.fromkeys(field.names, None if field.default is REQUIRED else field.default))
        self.__dict__.update(fields)


@pytest.mark.parametrize("api", Api)
def test_what_is_sent_is_what_is_read(api: Api) -> None:
    for wanted in (SamplingParams(**GOOD), SamplingParams(), SamplingParams(temperature=0, top_k=7)):
        fields = to_request(api, wanted)
        read = from_request(api, Body(api, **fields))
        for name, parameter in PARAMETERS.items():
            moot = wanted.greedy and parameter.is_moot_if_greedy
            if parameter.field(api) is not None and not moot:
                sent, got = getattr(wanted, name), getattr(read, name)
                assert sent == got or (sent in parameter.off and got in parameter.off), name


@pytest.mark.parametrize("api", Api)
def test_an_error_has_the_protocols_name(api: Api) -> None:
    for name, parameter in PARAMETERS.items():
        if (field := parameter.field(api)) is not None:
            with pytest.raises(UsageError, match=field.name) as caught:
                from_request(api, Body(api, **{field.name: BAD[name]}))
            assert caught.value.param == field.name


def test_the_documentation_has_each_name() -> None:
    page = markdown()
    for name, parameter in PARAMETERS.items():
        assert page.count(f"\n| `{name}` |") == 2
        for api in Api:
            field = parameter.field(api)
            assert field is None or f"`{field.name}`" in page
