"""The OpenAI protocol over an engine that plays the scripts of a test: by raw HTTP and by the official SDK."""

import codecs
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import httpx2
import openai
from fastapi import FastAPI

from aici_engine.events import FinishReason
from aici_engine.server.api.app import create_app
from aici_engine.server.link import wire
from tests.support.fake_engine import Script
from tests.support.fake_service import ServiceClient, fake_service, vocabulary

Json = dict[str, Any]
_JSON = {"content-type": "application/json"}


class Api:
    def __init__(self, *scripts: Script, template: str | None = None) -> None:
        self.service, self.engine = fake_service(*scripts, template=template)
        self.http = ServiceClient(self.service)
        self.sdk = openai.OpenAI(http_client=self.http, base_url="http://aici/v1", api_key="none", max_retries=0)

    @cached_property
    def app(self) -> FastAPI:
        """An application of its own, to be served or called without `http`."""
        return create_app(self.service)

    def post(self, path: str, body: Json) -> httpx2.Response:
        # Escaped: lone surrogates, which UTF-8 cannot encode, can be sent too.
        answer: httpx2.Response = self.http.post(path, content=json.dumps(body), headers=_JSON)
        return answer

    def answer(self, path: str, body: Json) -> Json:
        answer = self.post(path, body)
        assert answer.status_code == 200, answer.text
        result: Json = answer.json()
        return result

    def chunks(self, path: str, body: Json) -> list[Json]:
        """Return the data of all events before the last event, [DONE]."""
        answer = self.post(path, {**body, "stream": True})
        assert answer.status_code == 200, answer.text
        *chunks, done = events(answer.text)
        assert done == "[DONE]"
        return [json.loads(chunk) for chunk in chunks]

    def refusal(self, path: str, body: Json) -> tuple[int, str, str | None]:
        """Return status, message and field of an error, the same with and without streaming; the engine hears
        nothing."""
        answers = [self.post(path, {"stream": stream, **body}) for stream in (False, True)]
        assert not self.engine.submitted
        found = []
        for answer in answers:
            error = answer.json()["error"]
            assert isinstance(error["code"], str)
            assert error["code"] != error["type"]
            found.append((answer.status_code, error["message"], error["param"]))
        assert found[0] == found[1]
        return found[0]


def events(body: str) -> list[str]:
    """Split a stream of server-sent events. Every event must be a line of data and an empty line."""
    *frames, rest = body.split("\n\n")
    assert rest == ""
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    return [frame.removeprefix("data: ") for frame in frames]


def samples(
    *tokens: int,
    logprobs: Sequence[float] = (),
    top: Sequence[list[tuple[int, float]]] = (),
    reason: FinishReason = FinishReason.EOS,
    prompt_logprobs: Sequence[float] = (),
) -> Script:
    """Return a script that plays these tokens of the default model, with the messages of the real engine."""

    def script(submit: wire.Submit) -> Iterable[wire.StreamOut]:
        if submit.score_from is not None:
            scores: list[wire.Score] = [(submit.prompt[0], None, [])]
            scores += [(t, p, [(t, p)]) for t, p in zip(submit.prompt[1:], prompt_logprobs, strict=True)]
            yield wire.ScoreOut(submit.stream, scores)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = ""
        for i, token in enumerate(tokens[: submit.sampling.max_tokens]):
            data = vocabulary().bytes_of(token)
            piece = decoder.decode(data)
            text += piece
            logprob = logprobs[i] if logprobs else -0.5
            yield wire.TokenOut(
                submit.stream, token, data, piece, False, logprob, top[i] if top else [(token, logprob)]
            )
        tail = decoder.decode(b"", final=True)
        usage = wire.UsageOut(len(submit.prompt), len(tokens), 0)
        yield wire.FinishOut(submit.stream, reason, tail, usage, text=text + tail)

    return script
