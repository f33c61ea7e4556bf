"""`aici run --explain`: a line a step: tokens sampled, forced and taken back, and the tokens that the mask refused."""

import json
import sys
from typing import TYPE_CHECKING, Any

from aici_base.plain_text import without_controls
from aici_cli.render import token_fields

if TYPE_CHECKING:
    from rich.text import Text

    from aici import Event, Explanation, Result, Stream, Token

_TOKEN_COLUMNS = 16
_STYLES = {"sampled": "", "forced": "cyan", "removed": "strike red"}


def explain_stream(stream: "Stream[Any]", *, sample: int | None, as_json: bool) -> "Result[Any]":
    """Read a stream to its end, and print its steps. `sample`: the number of the answer, if there are several."""
    from aici import FinishEvent, ForkEvent

    trace = _JsonLines(sample) if as_json else _Trace(sample)
    for event in stream:
        if isinstance(event, ForkEvent):
            trace.take(event.fork, event.event)
        else:
            trace.take(0, event)
        if isinstance(event, FinishEvent):
            break  # or the stream would raise what failed
    return stream.result()


class _JsonLines:
    """Prints one JSON object an event."""

    def __init__(self, sample: int | None) -> None:
        self._head = {} if sample is None else {"sample": sample}

    def take(self, fork: int, event: "Event") -> None:
        fields = _fields(event)
        if fields is not None:
            line = json.dumps({**self._head, "fork": fork, **fields}, ensure_ascii=False)
            sys.stdout.buffer.write(line.encode() + b"\n")
            sys.stdout.buffer.flush()


def _fields(event: "Event") -> dict[str, Any] | None:
    from aici import BacktrackEvent, ControlEvent, FinishEvent, ForkedEvent, SuspendedEvent, TokenEvent

    match event:
        case TokenEvent(token, text):
            return {"event": "token", **token_fields(token), "text": text}
        case BacktrackEvent(num_tokens):
            return {"event": "backtrack", "num_tokens": num_tokens}
        case ForkedEvent(parent, text):
            return {"event": "fork", "parent": parent, "text": text}
        case SuspendedEvent():
            return {"event": "suspended"}
        case ControlEvent(logs, storage):
            return {"event": "control", "logs": logs, "storage": list(storage)}
        case FinishEvent():
            error = event.error.message if event.error else None
            return {"event": "finish", "finish_reason": str(event.reason), "text": event.text, "error": error}
        case _:
            return None


class _Trace:
    """Prints one line an event, in colours on a terminal."""

    def __init__(self, sample: int | None) -> None:
        from rich.console import Console
        from rich.text import Text

        self._console = Console(highlight=False)
        self._sample = "" if sample is None else f"{sample}: "
        self._tokens: dict[int, list[Token]] = {}
        titles = f"{'step':8} {'token':{_TOKEN_COLUMNS}}{'before':>7}{'after':>7}{'allowed':>8}  other likely tokens"
        self._print(0, Text(titles, style="bold"))

    def take(self, fork: int, event: "Event") -> None:
        from aici import BacktrackEvent, ControlEvent, FinishEvent, ForkedEvent, SuspendedEvent, TokenEvent

        tokens = self._tokens.setdefault(fork, [])
        match event:
            case TokenEvent(token):
                tokens.append(token)
                self._step(fork, str(token.origin), token)
            case BacktrackEvent(num_tokens):
                for _ in range(min(num_tokens, len(tokens))):
                    self._step(fork, "removed", tokens.pop())
            case ForkedEvent(parent, _, inherited):
                tokens += inherited or self._tokens.get(parent, [])
                self._say(fork, f"a fork of [{parent}]")
            case SuspendedEvent():
                self._say(fork, "waits for another fork")
            case ControlEvent(logs, _):
                for line in logs.splitlines():
                    self._say(fork, f"log      {without_controls(line, keep=chr(9))}")
            case FinishEvent():
                self._say(fork, f"ended    {event.reason}: {quoted(event.text)}")

    def _step(self, fork: int, kind: str, token: "Token") -> None:
        from rich.text import Text

        style = _STYLES[kind]
        shown = quoted(token.data.decode("utf-8", "replace")) if token.data else _name(token)
        line = Text.assemble((f"{kind:8} ", style.removeprefix("strike ")), (shown, style))
        if token.explanation is not None and kind == "sampled":
            line.append(" " * max(1, _TOKEN_COLUMNS - len(shown)))
            _append_reasons(line, token, token.explanation)
        self._print(fork, line)

    def _say(self, fork: int, text: str) -> None:
        from rich.text import Text

        self._print(fork, Text(text, style="dim"))

    def _print(self, fork: int, line: "Text") -> None:
        mark = self._sample + (f"[{fork}] " if len(self._tokens) > 1 else "")
        line.overflow, line.no_wrap = "ignore", True
        self._console.print(mark, line, sep="", markup=False, soft_wrap=True)


def _name(token: "Token") -> str:
    """Return the name of a special token, known if the token is among the likeliest."""
    likeliest = token.explanation.likeliest if token.explanation else ()
    return next((each.text for each in likeliest if each.token_id == token.token_id), f"token {token.token_id}")


def _append_reasons(line: "Text", token: "Token", why: "Explanation") -> None:
    """Add the probabilities before and after the mask, the size of the mask, and the other likely tokens."""
    line.append(f"{_percent(why.probability):>7}{_percent(why.masked_probability):>7}{why.num_allowed:8}")
    others = [each for each in why.likeliest if each.token_id != token.token_id]
    for allowed, word, style in ((False, "refused", "red"), (True, "allowed", "dim")):
        texts = [f"{quoted(each.text)} {_percent(each.probability)}" for each in others if each.allowed is allowed]
        if texts:
            line.append(f"  {word} ", style="dim")
            line.append(", ".join(texts), style=style)


def _percent(probability: float) -> str:
    return "<0.1%" if probability < 0.0005 else f"{probability:.1%}"


def quoted(text: str) -> str:
    r"""Return a text in quotes, control characters as escapes.

    >>> print(quoted("a\n"), quoted('{"'))
    "a\n" '{"'
    """
    quote = "'" if '"' in text and "'" not in text else '"'
    return quote + without_controls(text.replace("\\", "\\\\").replace(quote, "\\" + quote)) + quote
