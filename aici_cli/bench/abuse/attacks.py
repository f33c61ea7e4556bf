"""The attacks by name: what a hostile client sends."""

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from aici_cli.bench.abuse.client import Body, Client
from aici_cli.bench.abuse.guests import guest, renamed, with_empty_functions, with_large_function

Answered = Callable[[str], None]
"""Called with the status of each answer."""

Probe = Literal["first token", "upload", "check", "health"]
"""What a third key asks for meanwhile, again and again: its longest wait is measured."""


@dataclass(frozen=True, slots=True)
class Attacker:
    """`client`: with the attacker's key. `upload` returns the id of a controller. The attack lasts until the process is
    killed."""

    client: Client
    upload: Callable[[bytes], str]
    answered: Answered

    def repeat(self, clients: int, body: Callable[[int], Body]) -> None:
        """Send `body(0)`, `body(1)`, ... from so many clients at a time, each when its last answer is complete."""
        numbers = itertools.count()

        def one() -> None:
            while True:
                answer = self.client.ask(body(next(numbers)))
                self.answered(answer)
                # A refused client tries again, but does not turn the attack into one by the number of requests.
                time.sleep(0 if answer == "200" else 0.1)

        for _ in range(clients):
            threading.Thread(target=one, daemon=True).start()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """`prepare` makes modules and bodies, before the time is measured, and returns a function that begins the attack.

    `descriptors`: the attack needs a server that may open so many files.
    """

    means: str
    prepare: Callable[[Attacker], Callable[[], None]]
    probe: Probe = "health"
    descriptors: int | None = None


def _run(controller: str, **more: Any) -> Body:
    return Body.json("/run", {"controller": controller, "controller_arg": "", "prompt": "Once", **more})


def _repeated(clients: int, body: Callable[[int], Body]) -> Callable[[Attacker], Callable[[], None]]:
    return lambda attacker: lambda: attacker.repeat(clients, body)


def _large(body: Callable[[], Body]) -> Callable[[Attacker], Callable[[], None]]:
    """Send one large body again and again from two clients."""

    def prepare(attacker: Attacker) -> Callable[[], None]:
        made = body()
        return lambda: attacker.repeat(2, lambda _: made)

    return prepare


def _with_guest(kind: str, clients: int, **more: Any) -> Callable[[Attacker], Callable[[], None]]:
    def prepare(attacker: Attacker) -> Callable[[], None]:
        body = _run(attacker.upload(guest(kind)), **more)
        return lambda: attacker.repeat(clients, lambda _: body)

    return prepare


def _compiling(make: Callable[[bytes], bytes]) -> Callable[[Attacker], Callable[[], None]]:
    def prepare(attacker: Attacker) -> Callable[[], None]:
        bomb = make(guest("honest"))
        run = os.urandom(8).hex()
        return lambda: attacker.repeat(3, lambda number: Body.wasm(renamed(bomb, f"{run} {number}")))

    return prepare


def _costly_schema(number: int) -> Body:
    patterns = [f"(a|b)*a(a|b){{{10 + k}}}{number}" for k in range(16)]
    schema = {"oneOf": [{"type": "string", "pattern": f"^{pattern}$"} for pattern in patterns]}
    return Body.json("/check", {"guided_json": schema})


def _template(text: str) -> Callable[[Attacker], Callable[[], None]]:
    messages = [{"role": "user", "content": "x"}]
    body = Body.json("/chat/completions", {"messages": messages, "chat_template": text, "max_tokens": 1})
    return _repeated(2, lambda _: body)


def _lmtp_texts(attacker: Attacker) -> Callable[[], None]:
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import connect

    from aici.remote.address import split_url

    url = split_url(attacker.client.url)[0].removesuffix("/v1").replace("http", "ws", 1) + "/lmtp"
    prompt = json.dumps(["x"] * 1_500_000)

    def one() -> None:
        while True:
            try:
                with connect(url, additional_headers=dict(attacker.client.headers), max_size=None) as socket:
                    for stream in itertools.count():
                        socket.send(f'GENERATE {{"stream_id": {stream}, "model": "default", "prompt": {prompt}}}')
                        attacker.answered(str(socket.recv())[:90])
            except (OSError, WebSocketException) as error:
                attacker.answered(str(error)[:90])
                time.sleep(0.1)

    return lambda: threading.Thread(target=one, daemon=True).start()


def _held(count: int, first: Callable[[Client], bytes], then: bytes) -> Callable[[Attacker], Callable[[], None]]:
    """Open connections, send `first` on each, then a byte of `then` a second."""

    def prepare(attacker: Attacker) -> Callable[[], None]:
        head = first(attacker.client)

        def one() -> None:
            while True:
                try:
                    with attacker.client.socket() as socket:
                        socket.sendall(head)
                        while then:
                            time.sleep(1)
                            socket.sendall(then)
                        said = socket.recv(100)
                        attacker.answered("closed" if not said else said.split(b"\r\n")[0].decode(errors="replace"))
                except OSError as error:
                    attacker.answered(type(error).__name__)
                time.sleep(0.1)

        def begin() -> None:
            for _ in range(count):
                threading.Thread(target=one, daemon=True).start()

        return begin

    return prepare


ATTACKS: Final[Mapping[str, Attack]] = {
    **{
        f"honest-{clients}": Attack(
            means=f"no attack: {clients} sequences of an honest controller, for comparison",
            prepare=_with_guest("honest", clients, max_tokens=400),
            probe="first token",
        )
        for clients in (1, 8, 16)
    },
    "stops": Attack(
        means="3 MB of stop strings, and a controller that forks into 16",
        prepare=_with_guest("fork", 2, stop=["s" * 300_000] * 10, max_tokens=8),
    ),
    "stops-allowed": Attack(
        means="8,192 characters of stop strings, and a controller that forks into 16",
        prepare=_with_guest("fork", 1, stop=[f"{n:02}" + "ab" * 127 for n in range(32)], max_tokens=8),
    ),
    "messages": Attack(
        means="bodies of 200,000 messages (8 MB)",
        prepare=_large(
            lambda: Body.json("/chat/completions", {"messages": [{"role": "user", "content": ""}] * 200_000})
        ),
    ),
    "keys": Attack(
        means="bodies of 500,000 unknown keys (8 MB)",
        prepare=_large(lambda: Body.json("/chat/completions", {"messages": []} | {f"k{n}": 1 for n in range(500_000)})),
    ),
    "tokens": Attack(
        means="prompts of 2,000,000 tokens (8 MB)",
        prepare=_large(lambda: Body(path="/completions", data=b'{"prompt": [' + b"1, " * 2_000_000 + b"1]}")),
    ),
    "lmtp": Attack(means="LMTP prompts of 1,500,000 texts", prepare=_lmtp_texts),
    "forks": Attack(
        means="8 requests that fork into 16 sequences each",
        prepare=_with_guest("fork", 8, max_tokens=400),
        probe="first token",
    ),
    "priority": Attack(
        means="48 requests of the highest priority",
        prepare=_repeated(
            48,
            lambda _: Body.json(
                "/completions", {"prompt": "Once", "max_tokens": 200, "ignore_eos": True, "priority": -(2**31)}
            ),
        ),
        probe="first token",
    ),
    **{
        f"{kind.replace(' ', '-')}-{clients}": Attack(
            means=f"{clients} sequence{'s' * (clients > 1)} of a guest with {what}",
            prepare=_with_guest(kind, clients, max_tokens=400),
            probe="first token",
        )
        for kind, what in (
            ("loop in mid", "an endless loop in mid"),
            ("loop in init", "an endless loop in init"),
            ("busy mid", "50 ms of work a step"),
        )
        for clients in (1, 8)
    },
    "compile-functions": Attack(
        means="uploads of 990,000 empty functions (4 MB), 3 at a time",
        prepare=_compiling(lambda wasm: with_empty_functions(wasm, 990_000)),
        probe="upload",
    ),
    "compile-body": Attack(
        means="uploads of one function of 2 MB, 3 at a time",
        prepare=_compiling(lambda wasm: with_large_function(wasm, 2_000_000)),
        probe="upload",
    ),
    "check": Attack(
        means="6 checks at a time of a schema with 16 exponential patterns",
        prepare=_repeated(6, _costly_schema),
        probe="check",
    ),
    "template-number": Attack(means="chat templates with {{ 10**(10**9) }}", prepare=_template("{{ 10**(10**9) }}")),
    "template-loop": Attack(
        means="chat templates with nested loops",
        prepare=_template("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
    ),
    "slow-bodies": Attack(
        means="200 bodies, a byte a second",
        prepare=_held(200, lambda client: client.head("POST", "/v1/run", Content_Length="1000"), b"{"),
    ),
    "slow-heads": Attack(
        means="200 heads, a byte a second",
        prepare=_held(200, lambda client: client.head("POST", "/v1/run")[:-2] + b"X-", b"x"),
    ),
    "idle": Attack(
        means="120 idle connections to a server with 72 descriptors",
        prepare=_held(120, lambda _: b"", b""),
        descriptors=72,
    ),
}
