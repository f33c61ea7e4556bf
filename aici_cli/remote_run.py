"""`aici run --server`: requests to a server, and its answers as the events that a local engine reports."""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aici_cli.constraint import Control
from aici_cli.remote import Remote, RemoteRun
from aici_engine.config import SamplingParams
from aici_engine.events import Event, FinishEvent, FinishReason, Origin, Timings, Token, TokenEvent, Usage
from aici_runtime.errors import AiciError, ControllerError, NotFoundError
from aici_runtime.ids import TokenId


@contextlib.contextmanager
def started(
    remote: Remote,
    prompt: str,
    sampling: Sequence[SamplingParams],
    *,
    control: Control | None,
    chat: bool,
    model: str | None,
) -> Iterator[list[RemoteRun]]:
    """A run for each of `sampling`. They end with the context."""
    request: dict[str, Any] = {"controller": "none", "controller_arg": None}
    if control is not None:
        name = control.name or hashlib.sha256(control.wasm).hexdigest()
        request = {"controller": name, "controller_arg": control.argument}
    request |= {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
    request |= {"return_tokens": True} | ({} if model is None else {"model": model})
    requests = [request | _fields(each) for each in sampling]
    with contextlib.ExitStack() as stack:
        first = _first(remote, requests[0], control)
        yield [stack.enter_context(run) for run in (first, *map(remote.start, requests[1:]))]


def _first(remote: Remote, request: Mapping[str, Any], control: Control | None) -> RemoteRun:
    """A module is uploaded when the server says that it does not have it."""
    run = remote.start(request)
    try:
        run.wait_started()
    except BaseException as error:
        run.close()
        if control is None or control.name is not None or not isinstance(error, NotFoundError):
            raise
        remote.upload(control.wasm)
        return remote.start(request)
    return run


def _fields(sampling: SamplingParams) -> dict[str, Any]:
    fields: dict[str, Any] = {"max_tokens": sampling.max_tokens, "stop": list(sampling.stop)}
    fields |= {"seed": sampling.seed, "logprobs": sampling.logprobs, "temperature": sampling.temperature}
    if not sampling.greedy:
        fields |= {"top_k": sampling.top_k or -1, "top_p": sampling.top_p}
    return fields


class RemoteEvents:
    """The events of one run; `model` is known from the first on."""

    def __init__(self, run: RemoteRun) -> None:
        self._run = run
        self.model = ""

    def __iter__(self) -> Iterator[Event]:
        """A TokenEvent for each token, then the FinishEvent. Several tokens may have come with one text."""
        output: list[Token] = []
        num = {Origin.SAMPLED: 0, Origin.FORCED: 0}
        logs: list[str] = []
        storage: list[Any] = []
        for told in self._run.objects():
            if told["object"] == "initial-run":
                self.model = told["model"]
                continue
            fork = told["forks"][0]
            logs.append(fork["logs"])
            storage += fork["storage"]
            text = fork["text"]
            for entry in fork["tokens"]:
                if "backtrack" in entry:
                    del output[max(0, len(output) - entry["backtrack"]) :]
                else:
                    output.append(_token(entry))
                    num[output[-1].origin] += 1
                    yield TokenEvent(output[-1], text)
                    text = ""
            if reason := fork.get("finish_reason"):
                usage = Usage(
                    prompt_tokens=told["usage"]["prompt_tokens"],
                    sampled_tokens=num[Origin.SAMPLED],
                    ff_tokens=num[Origin.FORCED],
                )
                yield FinishEvent(
                    reason=FinishReason(reason),
                    text=_text(output, fork.get("stop")),
                    tail=text,
                    tokens=tuple(output),
                    usage=usage,
                    timings=_timings(told["timings"]),
                    logs="".join(logs),
                    storage=tuple(storage),
                    error=ControllerError(fork["error"]) if reason == FinishReason.FAIL else None,
                    stop=fork.get("stop"),
                )
                return
        raise AiciError("the server ended the run without saying why")


def _token(entry: Mapping[str, Any]) -> Token:
    top = tuple((TokenId(each["id"]), each["logprob"]) for each in entry.get("top_logprobs", ()))
    return Token(
        TokenId(entry["id"]), bytes.fromhex(entry["bytes"]), Origin(entry["origin"]), entry.get("logprob"), top
    )


def _timings(told: Mapping[str, float]) -> Timings:
    return Timings(started_s=told["started_s"], first_token_s=told["first_token_s"], total_s=told["total_s"])


def _text(output: Sequence[Token], stop: str | None) -> str:
    text = b"".join(token.data for token in output).decode("utf-8", "replace")
    return text if stop is None else text.partition(stop)[0]
