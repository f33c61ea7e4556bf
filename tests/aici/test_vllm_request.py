"""The field `aici` of a request to vLLM."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

import aici
from aici.vllm_request import check_sampling, constraint_of

GOOD: list[tuple[dict[str, Any], str]] = [
    ({"regex": "[0-9]+"}, "regex"),
    ({"json_schema": {"type": "integer"}}, "json_schema"),
    ({"json_schema": '{"type": "integer"}', "schema_options": {"whitespace": "compact"}}, "json_schema"),
    ({"grammar": 'start: "a"', "grammar_syntax": "lark"}, "grammar"),
    ({"choice": ["yes", "no"]}, "choices"),
    ({"substring": "one two three", "end": "."}, "substring"),
    ({"controller": "jsctrl", "controller_arg": "await gen({maxTokens: 1})"}, "jsctrl"),
]


@pytest.mark.parametrize(("value", "controller"), GOOD)
def test_an_object_and_its_text_give_one_constraint(value: dict[str, Any], controller: str) -> None:
    constraint = constraint_of({"aici": value})
    assert constraint is not None
    assert constraint.controller == controller
    assert constraint_of({"aici": json.dumps(value)}) == constraint


def test_a_request_without_the_field_has_no_constraint() -> None:
    assert constraint_of(None) is None
    assert constraint_of({"other": 1}) is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{", "not JSON"),
        (3, "an object or its JSON text"),
        ("[]", "not an object"),
        ({}, "0 constraints"),
        ({"regex": "a", "choice": ["b"]}, "2 constraints"),
        ({"regex": "a", "nix": 1}, "unknown field nix"),
        ({"regex": "("}, "missing"),
        ({"regex": 3}, "is a text"),
        ({"choice": "ab"}, "not a list"),
        ({"grammar": 1}, "not a text"),
        ({"json_schema": {"type": "nix"}}, "#/type"),
        ({"json_schema": {}, "schema_options": 1}, "not an object"),
        ({"controller": "/etc/passwd"}, "name, tag or id"),
        ({"controller": "a.wasm"}, "name, tag or id"),
    ],
)
def test_wrong_values_are_refused(value: object, said: str) -> None:
    with pytest.raises(aici.UsageError, match=said):
        constraint_of({"aici": value})


def test_a_grammar_is_never_a_file_of_the_server(tmp_path: Any) -> None:
    (tmp_path / "a.lark").write_text('start: "a"')
    with pytest.raises(aici.UsageError):
        constraint_of({"aici": {"grammar": str(tmp_path / "a.lark")}})


@pytest.mark.parametrize("name", ["ignore_eos", "min_tokens", "allowed_token_ids", "bad_words", "structured_outputs"])
def test_sampling_that_takes_tokens_from_a_mask_is_refused(name: str) -> None:
    check_sampling(SimpleNamespace(**{name: None}))
    with pytest.raises(aici.UsageError, match=f"{name} does not go with a controller"):
        check_sampling(SimpleNamespace(**{name: [1]}))
