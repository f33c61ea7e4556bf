"""The command `aici bench abuse`: run the attacks in turn and print what the others felt."""

import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from aici_base.errors import UnavailableError, UsageError
from aici_cli.output import print_json, say
from aici_cli.tables import print_table

if TYPE_CHECKING:
    from aici_cli.bench.abuse.attacks import Attack
    from aici_cli.bench.abuse.measure import Window

_PREPARE_S: Final = 40.0
_RECOVER_S: Final = 8.0


def abuse(
    only: Annotated[
        list[str] | None,
        typer.Option(help="An attack, or the first words of names, such as loop; may be repeated (default: all)."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.5, help="Seconds of each attack, and of quiet before it.")] = 3.0,
    patience: Annotated[
        float, typer.Option(min=0.1, help="Seconds to wait for an answer after the end of an attack.")
    ] = 10.0,
    limit: Annotated[float, typer.Option(min=1, help="Begin no attack after so many seconds.")] = 270.0,
    model: Annotated[str | None, typer.Option(help="The model of the started server.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the model in the started server.")] = 1,
    server: Annotated[
        str | None, typer.Option(help="A running server (default: start one). The attacks may stop it for a while.")
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="Keys of the running server: `key` of victim, attacker and other.")
    ] = None,
    server_python: Annotated[
        str | None, typer.Option(help="The Python that runs the started server, such as another checkout's.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Attack a server, and measure what a victim and a third client feel.

    The victim reads one plain stream after another. Before each attack, the same is measured without an attack:
    compare the two, because absolute times depend on the machine. The third client waits for its first token, an
    upload, a check or /health.
    """
    attacks = _chosen(only)
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        arena = _Arena(Path(folder), model, threads, server, api_key_file, server_python)
        with arena:
            for name, attack in attacks.items():
                if time.monotonic() - began > limit:
                    rows.append(_left_out(name, attack, f"not begun: {limit:g} s were over"))
                elif attack.descriptors is not None and server is not None:
                    rows.append(_left_out(name, attack, "needs a server that it starts"))
                else:
                    say(f"{name}: {attack.means}")
                    rows.append(_one(arena, name, attack, seconds, patience))
                    say(f"  {_summary(rows[-1])}")
    if json:
        print_json(rows)
    else:
        _print(rows)


def _chosen(only: Sequence[str] | None) -> "Mapping[str, Attack]":
    from aici_cli.bench.abuse.attacks import ATTACKS

    if not only:
        return ATTACKS
    for wanted in only:
        if not any(_is_named(name, wanted) for name in ATTACKS):
            raise UsageError(f"no attack is called {wanted!r}", hint=f"attacks: {', '.join(ATTACKS)}")
    return {name: attack for name, attack in ATTACKS.items() if any(_is_named(name, wanted) for wanted in only)}


def _is_named(name: str, wanted: str) -> bool:
    return f"{name}-".startswith(f"{wanted}-")


class _Arena:
    """The server and the victim. A context manager: nothing of ours runs afterwards.

    A server of ours that does not recover from an attack is replaced.
    """

    def __init__(
        self,
        folder: Path,
        model: str | None,
        threads: int,
        server: str | None,
        key_file: Path | None,
        python: str | None,
    ) -> None:
        self._folder, self._url, self._key_file, self._python = folder, server, key_file, python
        self._options = ["--threads", str(threads), *([] if model is None else ["--model", model])]
        self._stack = ExitStack()
        self._descriptors: int | None = None
        self._clean_s = 0.0

    def __enter__(self) -> "_Arena":
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def ready(self, descriptors: int | None) -> None:
        """Have a server with so many descriptors, and a victim with tokens."""
        if self._clean_s and descriptors == self._descriptors and self._recovered():
            return
        if self._clean_s and self._url is not None:
            raise UnavailableError("the server does not recover", hint="measure the other attacks with --only")
        self._stack.close()
        self._descriptors = descriptors
        self._begin()

    def _begin(self) -> None:
        import sys

        from aici.remote.address import key_headers, split_url
        from aici_cli.bench.abuse.client import Client
        from aici_cli.bench.abuse.measure import Victim
        from aici_cli.bench.abuse.server import ROLES, StartedServer

        if self._url is not None:
            url, headers = split_url(self._url)
            by_role = dict.fromkeys(ROLES, headers)
            if self._key_file is not None:
                by_role = {role: key_headers(key) for role, key in _keys_of(self._key_file).items()}
        else:
            python = self._python or sys.executable
            started = self._stack.enter_context(
                StartedServer(self._folder, self._options, python=python, descriptors=self._descriptors)
            )
            url, _ = split_url(started.url)
            by_role = {role: key_headers(key) for role, key in started.keys.items()}
        self.url, self.attacker_headers = url, by_role["attacker"]
        self.other: Client = Client(url, by_role["other"])
        self.victim: Victim = self._stack.enter_context(Victim(Client(url, by_role["victim"])))
        if not self.victim.wait_for_tokens(20, 60):
            raise UnavailableError("the victim gets no tokens", hint="does the server answer /v1/run?")
        begin = time.monotonic()
        self.victim.wait_for_tokens(60, 30)
        self._clean_s = (time.monotonic() - begin) / 60

    def _recovered(self) -> bool:
        """Wait until tokens come as fast as at the start, or nearly."""
        until = time.monotonic() + _RECOVER_S
        while (left := until - time.monotonic()) > 0:
            begin = time.monotonic()
            if self.victim.wait_for_tokens(40, left) and time.monotonic() - begin < 40 * 2 * self._clean_s:
                return True
        return False


def _keys_of(file: Path) -> Mapping[str, str]:
    import tomllib

    from aici_cli.bench.abuse.server import ROLES

    try:
        keys = tomllib.loads(file.read_text())["keys"]
        return {role: keys[role]["key"] for role in ROLES}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{file} has no keys: {error}", hint="it needs `key` of victim, attacker and other") from error


def _one(arena: _Arena, name: str, attack: "Attack", seconds: float, patience_s: float) -> dict[str, Any]:
    from aici_cli.bench.abuse.measure import AttackerProcess, watch

    arena.ready(attack.descriptors)
    ends_after_s = _PREPARE_S + 2 * (seconds + patience_s)
    with AttackerProcess(name, arena.url, arena.attacker_headers, ends_after_s) as attacker:
        if why := attacker.ready(_PREPARE_S):
            return _left_out(name, attack, why)
        clean = watch(arena.victim, arena.other, attack.probe, seconds, patience_s)
        attacker.begin()
        attacked = watch(arena.victim, arena.other, attack.probe, seconds, patience_s)
        answers = Counter(attacker.answers)
    return {
        "attack": name,
        "means": attack.means,
        "probe": attack.probe,
        "clean": _figures(clean),
        "attacked": _figures(attacked),
        "p50_ratio": attacked.gap_s(50) / clean.gap_s(50),
        "p99_ratio": attacked.gap_s(99) / clean.gap_s(99),
        "victim_failures": list(attacked.failures),
        "other_refused": list(attacked.refused),
        "answers": dict(answers.most_common()),
        "left_out": "",
    }


def _summary(row: Mapping[str, Any]) -> str:
    if row["left_out"]:
        return str(row["left_out"])
    attacked = row["attacked"]
    gaps = f"× {row['p50_ratio']:.2f} at p50, × {row['p99_ratio']:.2f} at p99, longest {attacked['longest_ms']:.0f} ms"
    return f"{gaps}; {row['probe']} within {attacked['wait_ms']:.0f} ms"


def _figures(window: "Window") -> dict[str, float]:
    return {
        "p50_ms": window.gap_s(50) * 1000,
        "p99_ms": window.gap_s(99) * 1000,
        "longest_ms": window.longest_s * 1000,
        "wait_ms": window.wait_s * 1000,
    }


def _left_out(name: str, attack: "Attack", why: str) -> dict[str, Any]:
    return {"attack": name, "means": attack.means, "probe": attack.probe, "left_out": why}


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    print("times in ms; clean: just before the attack. p50, p99: between two tokens of the victim; longest: without")
    print("a token; wait: the third client's longest, for what stands before it")
    columns = (
        "attack", "waits for", "clean p50", "clean p99", "clean longest", "clean wait", "p50", "p99", "longest",
        "wait", "× p50", "× p99", "failed",
    )  # fmt: skip
    print_table(columns, map(_cells, rows), num_left=2)
    for row in rows:
        if row["left_out"]:
            print(f"{row['attack']}: {row['left_out']}")
        else:
            said = ", ".join(f"{count} × {answer}" for answer, count in list(row["answers"].items())[:3])
            print(f"{row['attack']}: {row['means']}; answers: {said or 'none'}")
            for what in ("victim_failures", "other_refused"):
                if row[what]:
                    print(f"  {what.replace('_', ' ')}: {len(row[what])}, such as {row[what][0]}")


def _cells(row: Mapping[str, Any]) -> list[object]:
    if row["left_out"]:
        return [row["attack"], row["probe"]]
    names = ("p50_ms", "p99_ms", "longest_ms", "wait_ms")
    times = (f"{row[window][name]:.1f}" for window in ("clean", "attacked") for name in names)
    ratios = (f"{row['p50_ratio']:.2f}", f"{row['p99_ratio']:.2f}")
    return [row["attack"], row["probe"], *times, *ratios, len(row["victim_failures"])]
