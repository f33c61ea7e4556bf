"""`/tokenize`, `/detokenize` and `/tokenizer_info`, as lm-eval's remote tokenizer and vLLM's clients use them."""

import pytest

from tests.support.fake_service import vocabulary
from tests.support.openai_api import Api, Json

USER: Json = {"role": "user", "content": "Hi"}


def test_lm_evals_remote_tokenizer() -> None:
    api = Api()
    info = api.http.get("/tokenizer_info").json()
    assert (info["eos_token"], info["bos_token"]) == ("<|im_end|>", "<|im_start|>")
    assert "messages" in info["chat_template"]
    assert isinstance(info["tokenizer_class"], str)
    told = api.answer("/tokenize", {"model": "it", "prompt": "a<|im_end|>", "add_special_tokens": False})
    assert told == {
        "count": 2,
        "max_model_len": 2048,
        "tokens": vocabulary().encode("a<|im_end|>"),
        "token_strs": None,
    }
    assert api.answer("/detokenize", {"model": "it", "tokens": told["tokens"]}) == {"prompt": "a<|im_end|>"}


def test_a_conversation_is_tokenized_as_the_model_sees_it() -> None:
    api = Api()
    told = api.answer("/tokenize", {"messages": [USER], "return_token_strs": True})
    api.answer("/v1/chat/completions", {"messages": [USER]})
    assert told["tokens"] == api.engine.submitted[0].prompt
    assert told["token_strs"][0] == "<|im_start|>"
    ended = api.answer("/tokenize", {"messages": [USER], "add_generation_prompt": False})["tokens"]
    assert ended == told["tokens"][: len(ended)]


def test_a_text_may_be_longer_than_the_context() -> None:
    assert Api().answer("/tokenize", {"prompt": "a b " * 3000})["count"] >= 6000


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [USER]}, "prompt"),
        ("/tokenize", {"messages": [USER], "add_special_tokens": True}, "add_special_tokens"),
        ("/tokenize", {"prompt": "a", "text": "b"}, "text"),
        ("/tokenize", {"prompt": "a" * ((1 << 20) + 1)}, "prompt"),
        ("/detokenize", {"tokens": [49152]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens.0"),
        ("/detokenize", {}, "tokens"),
    ],
)
def test_what_is_wrong_is_named(path: str, body: Json, param: str) -> None:
    answer = Api().post(path, body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
