"""`aici bench constraint`: the cost of a constraint during decoding."""

import re
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aici_base.errors import AiciError
from aici_cli.bench.plot import check_plot, plot_constraint
from aici_cli.output import print_json, say
from aici_cli.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aici_engine.engine import Engine
    from aici_engine.events import FinishEvent
    from aici_engine.request import ControllerCall

PROMPTS = [f"Chapter {number}. It was a quiet morning in the village, and" for number in range(1, 65)]


def constraint(
    batch: Annotated[list[int], typer.Option(help="Sequences in a batch; may be repeated.")] = [1, 8],  # noqa: B006
    num_tokens: Annotated[int, typer.Option(min=2, help="Tokens to decode.")] = 48,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements per mask and batch size.")] = 9,
    quick: Annotated[bool, typer.Option("--quick", help="A short version: a minute.")] = False,
    model: Annotated[str | None, typer.Option(help="A model's name, folder, .gguf file or hub repository.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the results to this .svg or .png file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare decoding with and without a regex: the same greedy tokens and batch size, in turn.

    The mask `dense` allows nearly all tokens in every step, `sparse` only tokens that spell the text in either case.
    Exits with 1 if a constraint changes the tokens.
    """
    from aici_controllers.catalog import guest_path
    from aici_engine.config import EngineConfig
    from aici_engine.engine import Engine
    from aici_engine.request import ControllerCall
    from aici_engine.store.resolve import resolve_model
    from aici_runtime.client import Runtime, RuntimeConfig

    check_plot(plot)
    if quick:
        num_tokens, rounds = min(num_tokens, 24), min(rounds, 3)
    model_dir = resolve_model(model, say=say)
    rows = []
    with Runtime(RuntimeConfig(tokenizer=model_dir)) as runtime:
        runtime.wait_ready()
        module_id = runtime.mk_module(guest_path("regex").read_bytes()).module_id
        with Engine(EngineConfig(model_dir=model_dir, max_num_seqs=max(batch)), runtime=runtime) as engine:
            for size in batch:
                plain = _decode(engine, size, num_tokens, None)
                spelled = [ControllerCall(module_id, either_case(end.text)) for end in plain]
                anything = [ControllerCall(module_id, r"(.|\n)*")] * size
                for name, calls in (("dense", anything), ("sparse", spelled)):
                    say(f"batch {size}, {name}: {rounds} rounds of {num_tokens} tokens")
                    rows.append(_compare(engine, name, size, num_tokens, rounds, calls))
    if plot is not None:
        plot_constraint(rows, plot)
    if json:
        print_json(rows)
    else:
        _print_table(rows)
    check_tokens(rows)


def check_tokens(rows: "Sequence[Mapping[str, Any]]") -> None:
    """Raise AiciError if tokens differ: the two decodings are then different work, and the ratio says nothing."""
    if changed := [f"{row['mask']} at batch {row['batch']}" for row in rows if not row["same_tokens"]]:
        raise AiciError(f"a constraint that allows the text has changed the tokens: {', '.join(changed)}")


def either_case(text: str) -> str:
    """Return a pattern that `text` matches, and that leaves two characters at each place: no guest can force a token.

    >>> either_case("It.")
    '[Ii][tT][._](.|\\\\n)*'
    """
    return "".join(f"[{re.escape(char)}{re.escape(_other(char))}]" for char in text) + r"(.|\n)*"


def _other(char: str) -> str:
    swapped = char.swapcase()
    return swapped if len(swapped) == 1 and swapped != char else "-" if char == "_" else "_"


def _print_table(rows: "Sequence[Mapping[str, Any]]") -> None:
    names = ("plain_ms", "constrained_ms", "ratio_of_medians", "median_of_ratios")
    print_table(
        (
            "batch",
            "mask",
            "plain ms/token",
            "constrained ms/token",
            "ratio of medians",
            "median of ratios",
            "same tokens",
        ),
        (
            [row["batch"], row["mask"], *(f"{row[name]:.3f}" for name in names), "yes" if row["same_tokens"] else "NO"]
            for row in rows
        ),
        num_left=2,
    )


def _compare(
    engine: "Engine", name: str, size: int, num_tokens: int, rounds: int, calls: "Sequence[ControllerCall]"
) -> dict[str, Any]:
    """Compare the speeds. The ratio is constrained / plain; 1 means that the constraint costs nothing."""
    plain_ms, constrained_ms, same = [], [], True
    for _ in range(rounds):
        plain, constrained = _decode(engine, size, num_tokens, None), _decode(engine, size, num_tokens, calls)
        plain_ms.append(_ms_per_token(plain))
        constrained_ms.append(_ms_per_token(constrained))
        same = same and [end.tokens for end in plain] == [end.tokens for end in constrained]
    return {
        "batch": size,
        "mask": name,
        "plain_ms": statistics.median(plain_ms),
        "constrained_ms": statistics.median(constrained_ms),
        "ratio_of_medians": statistics.median(plain_ms) / statistics.median(constrained_ms),
        "median_of_ratios": statistics.median(a / b for a, b in zip(plain_ms, constrained_ms, strict=True)),
        "same_tokens": same,
    }


def _decode(
    engine: "Engine", size: int, num_tokens: int, calls: "Sequence[ControllerCall] | None"
) -> "list[FinishEvent]":
    from aici_engine.config import SamplingParams
    from aici_engine.request import Request

    greedy = SamplingParams(temperature=0.0, max_tokens=num_tokens)
    prompts = [PROMPTS[number % len(PROMPTS)] for number in range(size)]
    controllers: Sequence[ControllerCall | None] = [None] * size if calls is None else calls
    handles = [
        engine.submit(Request(prompt=prompt, sampling=greedy, controller=controller))
        for prompt, controller in zip(prompts, controllers, strict=True)
    ]
    return [handle.wait() for handle in handles]


def _ms_per_token(ends: "Sequence[FinishEvent]") -> float:
    """Return milliseconds per token from the first token to the end, without prefill and start of the guest."""
    seconds: Callable[[FinishEvent], float] = lambda end: end.timings.total_s - (end.timings.first_token_s or 0.0)  # noqa: E731
    return statistics.median(1000 * seconds(end) / (len(end.tokens) - 1) for end in ends)
