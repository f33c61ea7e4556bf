"""`aici batch`: answer a file of requests, each line exactly once."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aici_base.errors import UsageError
from aici_cli.model_flags import ModelFlags
from aici_cli.output import say
from aici_engine.config import DEFAULT_DTYPE, DEVICE_HELP, DTYPE_HELP, Device, Dtype

if TYPE_CHECKING:
    from aici_cli.batch_files import BatchInput, BatchOutput
    from aici_engine.server.batches.answering import Answerer

_DAYS_S = 7 * 86400.0
_GO_ON = "the same command goes on with the rest"


def batch(
    lines: Annotated[Path, typer.Argument(metavar="IN.jsonl", help="A file of requests; - is stdin.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file for the results; - is stdout.")],
    model: Annotated[str | None, typer.Option(help="A model's name, folder, .gguf file or hub repository.")] = None,
    alias: Annotated[
        list[str] | None, typer.Option(help="A further name of the model in the requests; repeat for more.")
    ] = None,
    server: Annotated[
        str | None, typer.Option(envvar="AICI_API_BASE", help="Run on the server at this URL; a key goes behind #key=.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=1024, help="Number of requests at a time.")] = 32,
    dtype: Annotated[Dtype | None, typer.Option(help=f"{DTYPE_HELP} (default: {DEFAULT_DTYPE})")] = None,
    device: Annotated[Device | None, typer.Option(help=f"{DEVICE_HELP} (default: auto)")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the model (default: one a core).")] = None,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="Answer the requests again whose result is an error.")
    ] = False,
) -> None:
    """Answer a file of requests, as OpenAI's batches have them. Run the same command again to go on after an end."""
    engine = ModelFlags(server=server, dtype=dtype, device=device, threads=threads)
    engine.check()
    if server is not None:
        for flag, is_given in (("--model", model is not None), ("--alias", bool(alias))):
            if is_given:
                raise UsageError(f"{flag} is not for --server", hint="each request names its model")
    from aici_cli.batch_files import BatchInput, BatchOutput

    with BatchInput(lines) as given:
        if given.is_file(output):
            raise UsageError(f"{output} is the file of the requests", hint="name another file with -o")
        with BatchOutput(output) as results:
            if strangers := results.finished.keys() - given.ids.keys():
                raise UsageError(
                    f"{output} has results of other requests, such as {min(strangers)!r}",
                    hint="name another file with -o, or move this one",
                )
            if retry_errors:
                results.drop_errors()
            if len(results.finished) < len(given.ids):
                opened = (
                    _on_server(server, concurrency)
                    if server is not None
                    else _here(model, tuple(alias or ()), concurrency, engine)
                )
                try:
                    asyncio.run(_run(given, results, opened, concurrency))
                except BaseException:
                    say(f"{len(results.finished)} of {len(given.ids)} requests have results: {_GO_ON}")
                    raise
            num_errors = sum(results.finished.values())
    say(f"{len(given.ids)} requests: {len(given.ids) - num_errors} answered, {num_errors} errors")
    if num_errors:
        raise typer.Exit(1)


async def _run(
    given: "BatchInput",
    results: "BatchOutput",
    opened: "contextlib.AbstractAsyncContextManager[Answerer]",
    concurrency: int,
) -> None:
    """Answer the lines that have no result yet, and append the results as they come."""
    import orjson

    from aici_engine.server.batches.answering import answer_all, answer_line, in_threads
    from aici_engine.server.batches.line import Line, result

    def append(texts: list[bytes]) -> None:
        results.append(texts)
        for text in texts:
            found = orjson.loads(text)
            results.finished[found["custom_id"]] = found["response"]["status_code"] != 200

    with _progress(len(given.ids)) as show:
        show(len(results.finished))
        async with opened as answerer:

            async def answered(line: Line) -> bytes:
                return result(line.custom_id, await answer_line(line, answerer))

            pending = in_threads(given.lines(frozenset(results.finished)))
            async with contextlib.aclosing(answer_all(pending, answered, lambda: concurrency)) as groups:
                async for texts in groups:
                    await asyncio.to_thread(append, texts)
                    show(len(results.finished))


@contextlib.asynccontextmanager
async def _here(
    model: str | None, aliases: tuple[str, ...], concurrency: int, engine: ModelFlags
) -> "AsyncIterator[Answerer]":
    """An engine of this command's own."""
    from aici_controllers.catalog import guest_names, guest_path
    from aici_engine.config import EngineConfig
    from aici_engine.server.api.in_process import in_process
    from aici_engine.server.config import ModelConfig, RequestLimits, ServerConfig
    from aici_engine.store.resolve import resolve_model

    model_dir = resolve_model(model, say=say)
    config = ServerConfig(
        models=(
            ModelConfig(
                engine=EngineConfig(
                    model_dir=model_dir,
                    dtype=engine.dtype or DEFAULT_DTYPE,
                    device=engine.device or "auto",
                    num_threads=engine.threads,
                    max_num_seqs=concurrency,
                ),
                name=model_dir.name,
                aliases=aliases,
            ),
        ),
        max_queue=128 * concurrency,  # a request may ask for 128 answers
        limits=RequestLimits(request_timeout_s=_DAYS_S),
        modules={guest: guest_path(guest) for guest in guest_names()},
        log_level="WARNING",
    )
    async with in_process(config) as answerer:
        yield answerer


@contextlib.asynccontextmanager
async def _on_server(url: str, concurrency: int) -> "AsyncIterator[Answerer]":
    from aici_cli.batch_server import ServerAnswers

    with ServerAnswers(url, concurrency) as answerer:
        yield answerer


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show the number of finished requests, if stderr is a terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("loading", total=total)

        def show(num_done: int) -> None:
            bar.update(task, completed=num_done, description="answering")

        yield show
