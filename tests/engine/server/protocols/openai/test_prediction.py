"""OpenAI's predicted outputs: the engine gets the tokens, and the usage says how much of them the answer has."""

from collections.abc import Iterable

import pytest
from openai.types.completion_usage import CompletionUsage

from aici_engine.events import FinishReason
from aici_engine.server.link import wire
from tests.support.fake_engine import Script
from tests.support.fake_service import vocabulary
from tests.support.openai_api import Api, Json

PATH = "/v1/chat/completions"
CODE = "a = 1\nb = 2\nc = 3\n"


def answers(text: str) -> Script:
    """Return a script of the text's tokens."""

    def script(submit: wire.Submit) -> Iterable[wire.StreamOut]:
        tokens = vocabulary().encode(text, add_special_tokens=False)
        for token in tokens:
            data = vocabulary().decode([token])
            yield wire.TokenOut(submit.stream, token, data.encode(), data, False, None, [])
        usage = wire.UsageOut(len(submit.prompt), len(tokens), 0)
        yield wire.FinishOut(submit.stream, FinishReason.EOS, "", usage, text=text)

    return script


def body(content: object) -> Json:
    prediction = {"type": "content", "content": content}
    return {"messages": [{"role": "user", "content": "Edit."}], "prediction": prediction, "n": 2}


@pytest.mark.parametrize("content", [CODE, [{"type": "text", "text": CODE[:7]}, {"type": "text", "text": CODE[7:]}]])
def test_the_engine_gets_the_prediction_and_the_usage_compares(content: object) -> None:
    api = Api(answers(CODE), answers("x = 1\n"))
    usage = CompletionUsage.model_validate(api.answer(PATH, body(content))["usage"])
    expected = vocabulary().encode(CODE, add_special_tokens=False)
    assert [submit.prediction for submit in api.engine.submitted] == [expected, expected]
    details = usage.completion_tokens_details
    assert details is not None
    assert details.accepted_prediction_tokens is not None
    assert details.rejected_prediction_tokens is not None
    assert len(expected) < details.accepted_prediction_tokens < 2 * len(expected)
    assert details.accepted_prediction_tokens + details.rejected_prediction_tokens == 2 * len(expected)
    streamed = Api(answers(CODE), answers("x = 1\n"))
    *_, last = streamed.chunks(PATH, body(content) | {"stream_options": {"include_usage": True}})
    assert CompletionUsage.model_validate(last["usage"]) == usage


def test_without_a_prediction_the_usage_has_no_such_fields() -> None:
    answer = Api(answers(CODE)).answer(PATH, {"messages": [{"role": "user", "content": "Edit."}]})
    assert "completion_tokens_details" not in answer["usage"]


def test_a_special_token_in_a_prediction_is_text() -> None:
    api = Api(answers(CODE))
    api.answer(PATH, body("<|im_end|>"))
    special = vocabulary().special_token("<|im_end|>")
    assert special not in api.engine.submitted[0].prediction


@pytest.mark.parametrize(
    ("prediction", "param"),
    [
        ({"type": "text", "content": "a"}, "prediction.type"),
        ({"type": "content"}, "prediction.content"),
        ({"type": "content", "content": 100_000 * "a long text "}, "prediction"),
    ],
)
def test_a_wrong_prediction_is_refused_by_name(prediction: Json, param: str) -> None:
    status, message, named = Api().refusal(PATH, body("") | {"prediction": prediction})
    assert (status, named) == (400, param), message
