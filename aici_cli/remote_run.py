"""`aici run --server`: requests to a server, and its answers as the events that a local engine reports."""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aici_base.errors import AiciError, ControllerError, NotFoundError
from aici_base.ids import TokenId
from aici_cli.constraint import Control
from aici_cli.remote import Remote, RemoteRun
from aici_engine.events import (
    ControlEvent,
    Event,
    FinishEvent,
    FinishReason,
    ForkedEvent,
    ForkEvent,
    Origin,
    Timings,
    Token,
    TokenEvent,
    Usage,
)
from aici_engine.parameter import Api
from aici_engine.sampling_params import SamplingParams, to_request


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
    requests = [request | to_request(Api.REST, each) for each in sampling]
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


class RemoteEvents:
    """The events of one run; `model` is known from the first on."""

    def __init__(self, run: RemoteRun) -> None:
        self._run = run
        self.model = ""

    def __iter__(self) -> Iterator[Event]:
        """Each token, what controllers wrote, and at the end how each fork ended, the root last.

        Several tokens may have come with one text, and a fork's first tokens are those of before.
        """
        forks: dict[int, _Fork] = {}
        for told in self._run.objects():
            if told["object"] == "initial-run":
                self.model = told["model"]
                continue
            # Forks that are new first: then it is known that there are some.
            for gain in sorted(told["forks"], key=lambda gain: "parent" not in gain or gain["index"] in forks):
                number = gain["index"]
                events = forks.setdefault(number, _Fork()).take(gain)
                yield from (ForkEvent(number, event) for event in events) if number else events
            if "timings" in told:
                for number, fork in reversed(forks.items()):
                    end = fork.end(told)
                    yield ForkEvent(number, end) if number else end
                return
        raise AiciError("the server ended the run without saying why")


class _Fork:
    """One sequence, as it is told."""

    def __init__(self) -> None:
        self._output: list[Token] = []
        self._logs: list[str] = []
        self._storage: list[Any] = []
        self._tail = ""
        self._last: Mapping[str, Any] = {}
        self._error = ""

    def take(self, gain: Mapping[str, Any]) -> Iterator[Event]:
        if not self._last and "parent" in gain:
            yield ForkedEvent(gain["parent"], "", ())
        self._last = gain
        self._error = self._error or gain["error"]
        self._logs.append(gain["logs"])
        self._storage += gain["storage"]
        if gain["storage"]:
            yield ControlEvent(gain["logs"], tuple(gain["storage"]))
        text = gain["text"]
        for entry in gain["tokens"]:
            if "backtrack" in entry:
                del self._output[max(0, len(self._output) - entry["backtrack"]) :]
            else:
                self._output.append(_token(entry))
                yield TokenEvent(self._output[-1], text)
                text = ""
        self._tail = text

    def end(self, told: Mapping[str, Any]) -> FinishEvent:
        """`told`: the last object of the run, whose usage is that of all forks."""
        reason, stop, usage = self._last["finish_reason"], self._last.get("stop"), told["usage"]
        return FinishEvent(
            reason=FinishReason(reason),
            text=_text(self._output, stop),
            tail=self._tail,
            tokens=tuple(self._output),
            usage=Usage(
                prompt_tokens=usage["prompt_tokens"],
                sampled_tokens=usage["sampled_tokens"],
                ff_tokens=usage["forced_tokens"],
            ),
            timings=_timings(told["timings"]),
            logs="".join(self._logs),
            storage=tuple(self._storage),
            error=ControllerError(self._error) if reason == FinishReason.FAIL else None,
            stop=stop,
        )


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
