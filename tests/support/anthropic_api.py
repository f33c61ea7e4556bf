"""The Anthropic protocol over a scripted engine, by raw HTTP and by the official SDK."""

import typing
from typing import Any

import anthropic
import httpx2
from anthropic.types import Message

from tests.support.fake_engine import Script
from tests.support.fake_service import ServiceClient, fake_service, vocabulary

Json = dict[str, Any]
USER: Json = {"role": "user", "content": "Hi"}
HELLO: Json = {"model": "it", "max_tokens": 16, "messages": [USER]}
PLACE: Json = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
WEATHER: Json = {"name": "weather", "description": "of a place", "input_schema": PLACE}


class Api:
    """The server over `scripts`, by raw HTTP and by the SDK."""

    def __init__(self, *scripts: Script, template: str | None = None) -> None:
        service, self.engine = fake_service(*scripts, template=template)
        self.http = ServiceClient(service)
        self.admission = service.admission
        self.sdk = anthropic.Anthropic(http_client=self.http, base_url="http://aici", api_key="none", max_retries=0)

    def post(self, **fields: object) -> httpx2.Response:
        return self.http.post("/v1/messages", json=HELLO | fields)

    def message(self, **fields: object) -> Json:
        answer = self.post(**fields)
        assert answer.status_code == 200, answer.text
        message: Json = answer.json()
        return message

    def streamed(self, **fields: object) -> Message:
        with self.sdk.messages.stream(**(HELLO | fields)) as stream:
            return typing.cast("Message", stream.get_final_message())

    def refusal(self, **fields: object) -> str:
        """Return the message of the status 400 for `fields`; the engine gets no request."""
        answer = self.post(**fields)
        assert answer.status_code == 400, answer.text
        body = answer.json()
        assert body["type"] == "error"
        assert body["error"]["type"] == "invalid_request_error"
        assert not self.engine.submitted
        return str(body["error"]["message"])

    def prompt(self, number: int = 0) -> str:
        names = vocabulary()
        tokens = self.engine.submitted[number].prompt
        return "".join(names.decode([token]) or names.name_of(token) for token in tokens)
