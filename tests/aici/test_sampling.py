"""Keywords in place of SamplingParams."""

from typing import Any

import pytest

import aici
from aici.sampling import sampling_params


def test_by_default_decoding_is_greedy_and_bounded() -> None:
    params = sampling_params(None, {}, None)
    assert (params.greedy, params.max_tokens) == (True, 256)
    script = aici.script('{"steps": []}', "steps")
    assert sampling_params(None, {}, script).max_tokens is None


def test_keywords_replace_fields() -> None:
    given = aici.SamplingParams(temperature=0.5, max_tokens=7)
    params = sampling_params(given, {"max_tokens": 8, "stop": "end"}, None)
    assert (params.temperature, params.max_tokens, params.stop) == (0.5, 8, ("end",))
    assert sampling_params(None, {"stop": ["a", "b"]}, None).stop == ("a", "b")


def test_an_unknown_keyword_is_refused() -> None:
    wrong: Any = {"max_token": 3}
    with pytest.raises(aici.UsageError, match="no sampling parameter max_token"):
        sampling_params(None, wrong, None)
