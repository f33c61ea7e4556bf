"""A prompt is tokenized once on its way: in the API process. The engine gets tokens."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from aici_engine.server.api.app import create_app
from aici_engine.vocabulary import ModelVocabulary
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over

PROMPT = "A prompt that nothing else in this request contains."
CHAT = {"model": "it", "max_tokens": 8, "messages": [{"role": "user", "content": PROMPT}]}


class CountingVocabulary:
    """Notes each text that is tokenized."""

    def __init__(self, inner: ModelVocabulary) -> None:
        self._inner = inner
        self.texts: list[str] = []

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        self.texts.append(text)
        return self._inner.encode(text, add_special_tokens=add_special_tokens)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions", CHAT | {"n": 3}),
        ("/v1/chat/completions", CHAT | {"stream": True}),
        ("/v1/completions", {"prompt": PROMPT}),
        ("/v1/completions", {"prompt": PROMPT, "n": 2, "echo": True, "logprobs": 1}),
        ("/v1/messages", CHAT),
        ("/v1/messages/count_tokens", {name: CHAT[name] for name in ("model", "messages")}),
        ("/v1/run", {"controller": "none", "controller_arg": PROMPT}),
        ("/v1/run", {"controller": "regex", "controller_arg": "[ab]+", "messages": CHAT["messages"]}),
    ],
)
def test_a_prompt_is_tokenized_once(path: str, body: dict[str, Any]) -> None:
    engine = FakeEngine()
    service = service_over(engine)
    counting: Any = CountingVocabulary(service.vocabulary)
    service.vocabulary = counting
    answer = TestClient(create_app(service)).post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert sum(PROMPT in text for text in counting.texts) == 1
    assert all(isinstance(token, int) for submit in engine.submitted for token in submit.prompt)
