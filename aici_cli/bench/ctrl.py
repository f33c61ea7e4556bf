"""`aici bench ctrl`: the cost of the guests that run scripts."""

from typing import Annotated

import typer

from aici_cli.output import print_json, say
from aici_cli.tables import print_table


def ctrl(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements per guest.")] = 15,
    steps: Annotated[int, typer.Option(min=1, help="Tokens per measurement.")] = 200,
    quick: Annotated[bool, typer.Option("--quick", help="A short version: a minute.")] = False,
    model: Annotated[str | None, typer.Option(help="A model's name or folder, for the tokenizer.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure size, start, time per token and memory per fork of the script guests, and of the regex guest.

    Start and time per token are measured in this process, with the calls of the runtime; forks in the runtime.
    """
    from aici_base.cache_files import default_cache_dir
    from aici_base.ids import TokenId
    from aici_controllers.catalog import guest_names
    from aici_controllers.guest_bench import NATIVE, measure
    from aici_controllers.in_process_guest import InProcessRuntime
    from aici_engine.store.resolve import resolve_model
    from aici_runtime.client import Runtime, RuntimeConfig
    from aici_runtime.tokenizer import vocabulary

    if quick:
        rounds, steps = min(rounds, 3), min(steps, 50)
    guests = [guest for guest in NATIVE if guest in guest_names()]
    for guest in NATIVE.keys() - set(guests):
        say(f"note: the guest {guest} is not built")
    model_dir = resolve_model(model, say=say)
    loaded = vocabulary.load(str(model_dir), default_cache_dir())
    in_process = InProcessRuntime(loaded)
    try:
        with Runtime(RuntimeConfig(tokenizer=model_dir)) as runtime:
            runtime.wait_ready()
            # Any token with a text, except EOS.
            token = TokenId(loaded.vocab_size // 2)
            rows = measure(guests, in_process, runtime, token=token, rounds=rounds, steps=steps)
    finally:
        in_process.close()
    if json:
        print_json([row.document() for row in rows])
        return
    print_table(
        (
            "guest",
            "wasm KB",
            "compile ms",
            "first ms",
            "ready ms",
            "memory MiB",
            "us/token",
            "interpreted us/token",
            "KiB/fork",
        ),
        (
            (
                row.guest,
                f"{row.wasm_bytes / 1e3:.0f}",
                f"{row.compile_ms:.0f}",
                f"{row.first_ms:.2f}",
                f"{row.ready_ms:.2f}",
                f"{row.memory_bytes / 2**20:.2f}",
                f"{row.step_us:.1f}",
                "" if row.interpreted_us is None else f"{row.interpreted_us:.1f}",
                f"{row.fork_bytes / 1024:.0f}",
            )
            for row in rows
        ),
    )
