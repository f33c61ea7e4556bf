"""`aici cluster status`: the pipeline of a server, as text, as JSON, or as a table that changes."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from aici_cli.output import print_json
from aici_cli.tables import table_text

if TYPE_CHECKING:
    from aici.remote.connection import Server

_COLUMNS = ("stage", "node", "layers", "weights", "cache", "computed", "waited")


def show(server: "Server", *, watch: bool, json: bool) -> None:
    """Print the state once, or with `watch` after every change until the server stops."""
    if not watch:
        with server.json("GET", "/cluster", for_operators=True) as document:
            print_json(document) if json else print("\n".join(lines(document)))
    elif json:
        from json import dumps

        for document in _documents(server):
            print(dumps(document), flush=True)
    else:
        _watch(server)


def lines(document: Mapping[str, Any], tokens_per_s: float | None = None) -> Iterator[str]:
    """Yield the lines of a table for people."""
    pipeline = document["pipeline"]
    if pipeline is None:
        yield (
            "no pipeline: one process runs the whole model"
            if document["engine_up"]
            else "the server has no engine at the moment"
        )
        return
    yield summary(pipeline, tokens_per_s)
    if found := list(rows(pipeline)):  # none while the pipeline is interrupted
        yield ""
        yield from table_text(_COLUMNS, found, num_left=len(_COLUMNS)).splitlines()
    yield from node_lines(pipeline)


def node_lines(pipeline: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for every node of a cluster that has no layers, or is not ready."""
    for node in pipeline.get("nodes", []):
        is_spare = node["first"] is None
        if node["state"] == "ready" and not is_spare:
            continue
        facts = [node["state"]]
        if node["state"] in ("away", "gone"):
            facts.append(f"for {node['away_s']} s")
        if is_spare:
            facts.append(f"spare of {node['budget_bytes'] / 1e6:.0f} MB")
        yield f"node {node['name']}: {', '.join(facts)}{': ' if node['trouble'] else ''}{node['trouble']}"


def summary(pipeline: Mapping[str, Any], tokens_per_s: float | None = None) -> str:
    """Return one line about the whole pipeline."""
    facts = [
        f"{pipeline['state']}: {pipeline['trouble']}" if pipeline["trouble"] else str(pipeline["state"]),
        f"{pipeline['num_pages']} pages of {pipeline['page_size']} tokens",
        f"{pipeline['num_steps']} steps",
    ]
    if pipeline["epoch"] is not None:
        facts.insert(1, f"epoch {pipeline['epoch']}")
    if pipeline["interruptions"]:
        facts.append(f"{pipeline['interruptions']} interruptions")
    if pipeline["hop_s"] is not None:
        facts.append(f"{pipeline['hop_s'] * 1000:.2f} ms a step on the way")
    if tokens_per_s is not None:
        facts.append(f"{tokens_per_s:.0f} tokens/s")
    return ", ".join(facts)


def rows(pipeline: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the texts of `_COLUMNS` for every stage, the driver last."""
    num_steps = max(1, pipeline["num_steps"])
    driver = pipeline["driver"]
    for i, stage in enumerate([*pipeline["stages"], *([] if driver is None else [driver])]):
        has_layers = stage["last"] > stage["first"]
        waited = stage.get("waited_s")
        yield (
            str(i),
            "driver" if stage is driver else stage["name"] or stage["address"],
            f"{stage['first']}-{stage['last'] - 1}" if has_layers else "none",
            f"{stage['weight_bytes'] / 1e6:.0f} MB",
            f"{stage['page_bytes'] * pipeline['num_pages'] / 1e6:.0f} MB",
            f"{stage['computed_s'] / num_steps * 1000:.2f} ms/step",
            "" if waited is None else f"{waited / num_steps * 1000:.2f} ms/step",
        )


def _watch(server: "Server") -> None:
    import time

    from rich.live import Live
    from rich.text import Text

    def timed() -> Iterator[tuple[float, Mapping[str, Any] | None]]:
        yield 0.0, None
        for document in _documents(server):
            yield time.monotonic(), document

    with Live(auto_refresh=False) as live:
        for (before, last), (now, document) in pairwise(timed()):
            assert document is not None
            rate = _tokens_per_s(last, document, now - before)
            live.update(Text("\n".join(lines(document, rate))), refresh=True)


def _tokens_per_s(last: Mapping[str, Any] | None, document: Mapping[str, Any], seconds: float) -> float | None:
    """Return computed tokens per second between two documents, of prompts too."""
    if last is None or not last["pipeline"] or not document["pipeline"]:
        return None
    num_tokens: int = document["pipeline"]["num_tokens"] - last["pipeline"]["num_tokens"]
    return max(0, num_tokens) / max(seconds, 1e-3)


def _documents(server: "Server") -> Iterator[Mapping[str, Any]]:
    """Yield the documents of the server's events."""
    from json import loads

    with (
        server.send("GET", "/cluster", for_operators=True, accept="text/event-stream") as exchange,
        exchange.read_errors(),
    ):
        for line in exchange.lines():
            if line.startswith(b"data: "):
                yield loads(line.removeprefix(b"data: "))
