"""`aici bench replicas`: the speed of several engines of a model, and their deaths, drains and scaling under load."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer

from aici_base.errors import UnavailableError, UsageError
from aici_cli.bench.replica_client import PATIENCE_S, ReplicaAdmin, SteadyLoad, chat_cached_tokens
from aici_cli.bench.replica_speed import SteadySpeed, steady_speed
from aici_cli.bench.serve import started_server
from aici_cli.output import print_json, say
from aici_cli.tables import print_table

_CHATS: Final = 8
_TURNS: Final = 6
_STEADY_S: Final = 4.0


def replicas(
    num: Annotated[int, typer.Option("--replicas", min=2, help="Replicas of the started server.")] = 2,
    model: Annotated[str | None, typer.Option(help="The model of the started server.")] = None,
    clients: Annotated[int, typer.Option(min=1, help="Concurrent clients of each replica.")] = 8,
    num_tokens: Annotated[int, typer.Option(min=2, help="Tokens per answer.")] = 192,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of the speed.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of a measurement of the speed.")] = 8.0,
    faults: Annotated[bool, typer.Option(help="Drain and kill replicas under load, and follow a load.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure tokens per second with all replicas and with a single replica, on cores of their own, and the cached
    tokens of chats. Then drain and kill replicas under load, and let a load start a replica.

    A single replica is measured with its clients alone, and with the clients of all replicas; the better speed counts.
    A speed is that of a steady load: all clients send request after request, and answers end at different times.
    Answers are not streamed: on few cores, the clients of streams would take a good part of the machine. Processor
    times change little on a busy machine, where speeds are wrong.
    """
    if num > len(os.sched_getaffinity(0)):
        raise UsageError(f"there are fewer cores than {num}", hint="give each replica a core: lower --replicas")
    every = num * clients
    flags = ["--replicas", str(num), "--max-num-seqs", str(every)]
    with started_server(model, *flags) as url:
        admin = ReplicaAdmin(url)
        rows = _speed(
            admin,
            num,
            clients,
            rounds,
            lambda many: steady_speed(admin, num_clients=many, num_tokens=num_tokens, seconds=seconds),
        )
        if faults:
            rows += [*_drained(admin, num, every), *_killed(admin, (num + 1) * every)]
    if faults:
        with started_server(model, "--replicas", f"1:{num}", "--max-num-seqs", "2") as url:
            rows += _followed(ReplicaAdmin(url))
    if json:
        print_json(rows)
    else:
        print_table(("what", "value", "unit"), [[row["what"], _shown(row["value"]), row["unit"]] for row in rows])


def _speed(
    admin: ReplicaAdmin, num: int, clients: int, rounds: int, measured: Callable[[int], SteadySpeed]
) -> list[dict[str, Any]]:
    """Measure all replicas and one in turn, A B A B. `measured`: the speed with a number of clients."""
    speeds: dict[str, list[SteadySpeed]] = {"all": [], "own": [], "every": []}
    cached: dict[str, list[float]] = {"all": [], "one": []}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}: {num} replicas, then one")
        speeds["all"].append(measured(num * clients))
        cached["all"].append(_share(admin, f"common {number}"))
        for other in range(2, num + 1):
            admin.drain(other)
        speeds["own"].append(measured(clients))
        speeds["every"].append(measured(num * clients))
        cached["one"].append(_share(admin, f"single {number}"))
        for other in range(2, num + 1):
            admin.rejoin(other)
    whole, one = _best(speeds["all"]), max(_best(speeds["own"]), _best(speeds["every"]), key=_tokens_per_s)
    many, single = sum(cached["all"]) / rounds, sum(cached["one"]) / rounds
    return [
        _row(f"tokens/s, {num} replicas, {num * clients} clients", whole.tokens_per_s, "tokens/s"),
        _row(f"tokens/s, one replica, {clients} clients", _best(speeds["own"]).tokens_per_s, "tokens/s"),
        _row(f"tokens/s, one replica, {num * clients} clients", _best(speeds["every"]).tokens_per_s, "tokens/s"),
        _row("speed of all over the better of one", whole.tokens_per_s / one.tokens_per_s, "times"),
        _row(f"processor time of a token, engines, {num} replicas", whole.engine_us, "us"),
        _row(f"processor time of a token, API process, {num} replicas", whole.api_us, "us"),
        _row("processor time of a token, engine, one replica", one.engine_us, "us"),
        _row("processor time of a token, API process, one replica", one.api_us, "us"),
        _row(f"cached tokens of {_CHATS} chats of {_TURNS} turns, {num} replicas", many, "of the prompts"),
        _row(f"cached tokens of {_CHATS} chats of {_TURNS} turns, one replica", single, "of the prompts"),
        _row("cached tokens of all over those of one", many / single, "times"),
    ]


def _best(speeds: Sequence[SteadySpeed]) -> SteadySpeed:
    return max(speeds, key=_tokens_per_s)


def _tokens_per_s(speed: SteadySpeed) -> float:
    return speed.tokens_per_s


def _share(admin: ReplicaAdmin, name: str) -> float:
    prompt, cached = chat_cached_tokens(admin.place, num_chats=_CHATS, num_turns=_TURNS, name=name)
    return cached / prompt


def _drained(admin: ReplicaAdmin, num: int, clients: int) -> list[dict[str, Any]]:
    say("all replicas are drained in turn, under load")
    with SteadyLoad(admin.place, clients, 16) as load:
        for number in range(1, num + 1):
            admin.drain(number)
            admin.rejoin(number)
        time.sleep(_STEADY_S / 4)
    return [
        _row("rolling drain: requests", len(load.ends), ""),
        _row("rolling drain: failed requests", len(load.errors), ""),
    ]


def _killed(admin: ReplicaAdmin, clients: int) -> list[dict[str, Any]]:
    """Kill an engine. `clients`: more than places, so that some requests wait."""
    say("the engine of replica 1 is killed, under load")
    with SteadyLoad(admin.place, clients, 64) as load:
        time.sleep(_STEADY_S)
        victim = admin.engine(1)
        killed_s = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        admin.wait_for(1, "restarting")
        away_s = admin.wait_for(1, "up")
        time.sleep(_STEADY_S / 4)
    over = [end for end in load.ends if end.began_s < killed_s < end.ended_s]
    waiting = [end for end in over if end.first_s is None or end.first_s > killed_s]
    lost = [end for end in over if end.error]
    late = [end for end in load.errors if end.began_s > killed_s]
    return [
        _row("kill -9: streams open at the kill", len(over), ""),
        _row("kill -9: of these, failed", len(lost), ""),
        _row("kill -9: streams without output at the kill", len(waiting), ""),
        _row("kill -9: of these, failed too", sum(bool(end.error) for end in waiting), ""),
        _row("kill -9: later requests that failed", len(late), ""),
        _row("kill -9: last failure after the kill", max((end.ended_s - killed_s for end in lost), default=0), "s"),
        _row("kill -9: the replica is up again after", away_s, "s"),
    ]


def _followed(admin: ReplicaAdmin) -> list[dict[str, Any]]:
    say("a load starts a second replica, and the load ends")
    began = time.monotonic()
    with SteadyLoad(admin.place, 16, 128) as load:
        admin.wait_for(2, "up")
        up_s = time.monotonic() - began
    idle = time.monotonic()
    while admin.states().count("up") > 1:
        if time.monotonic() - idle > PATIENCE_S:
            raise UnavailableError(f"more than one replica is up after {PATIENCE_S:g} s without load")
        time.sleep(0.1)
    now = time.monotonic()
    return [
        _row("growth: seconds of load until the second replica is up", up_s, "s"),
        _row("shrinking: seconds without load until one replica is left", now - idle, "s"),
        _row("growth and shrinking: failed requests", len(load.errors), ""),
    ]


def _row(what: str, value: float, unit: str) -> dict[str, Any]:
    return {"what": what, "value": value, "unit": unit}


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}" if value < 100 else f"{value:.0f}"
