"""`aici bench speculate`: several tokens a forward pass, against a token a pass."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aici_base.errors import AiciError, UsageError
from aici_cli.output import print_json, say
from aici_cli.tables import print_table
from aici_engine.config import DEFAULT_DTYPE, DRAFT_DTYPE_HELP, DTYPE_HELP, Dtype

if TYPE_CHECKING:
    from aici_engine.engine import Engine
    from aici_engine.events import FinishEvent
    from aici_engine.request import ControllerCall


@dataclass(frozen=True, slots=True)
class _Run:
    """Texts of one engine. The prompts were in the cache. `cpu_s`: of this process, without the guests."""

    texts: list[list[int]]
    wall_s: float
    cpu_s: float
    num_passes: int
    num_drafted: int
    num_accepted: int

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.texts))


def speculate(
    batch: Annotated[list[int], typer.Option(help="Sequences in a batch; may be repeated.")] = [1, 16],  # noqa: B006
    kind: Annotated[
        list[str] | None, typer.Option(help="extraction, edits, quotes or free; may be repeated (default: all).")
    ] = None,
    num_tokens: Annotated[int, typer.Option(min=2, help="The most tokens of a text.")] = 96,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements per kind of prompt.")] = 3,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the model (default: one a core).")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A short version, one round of 3 prompts of a kind: a minute.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="A model's name, folder, .gguf file or hub repository.")] = None,
    dtype: Annotated[Dtype, typer.Option(help=DTYPE_HELP)] = DEFAULT_DTYPE,
    draft_model: Annotated[
        str | None, typer.Option(metavar="NAME|FOLDER", help="A draft model drafts, in the place of ngram.")
    ] = None,
    draft_dtype: Annotated[Dtype | None, typer.Option(help=DRAFT_DTYPE_HELP)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare decoding with and without drafts (`--speculate`, `--draft-model`): greedy texts of 60 prompts, in turn.

    Kinds of prompts: extraction of JSON, edits of code, summaries with quotes, and free text; each without and with a
    constraint that allows every text. The column `right` has the drafted tokens that became text, of all that were
    computed. The ratios are of times without drafts to times with drafts: above 1 drafts are faster. Exits with 1 if
    drafts change a text.
    """
    from aici_cli.bench.speculate_prompts import KINDS
    from aici_controllers.catalog import guest_path, pooled_module_ids
    from aici_engine.config import EngineConfig
    from aici_engine.engine import Engine
    from aici_engine.request import ControllerCall
    from aici_engine.store.resolve import resolve_model
    from aici_runtime.client import Runtime, RuntimeConfig

    if unknown := set(kind or ()) - KINDS.keys():
        raise UsageError(f"unknown kind: {', '.join(sorted(unknown))}", hint=f"the kinds are {', '.join(KINDS)}")
    kinds = {name: prompts for name, prompts in KINDS.items() if not kind or name in kind}
    model_dir = resolve_model(model, say=say)
    num_prompts, rounds = (3, 1) if quick else (15, rounds)
    usual = EngineConfig(
        model_dir=model_dir, dtype=dtype, max_num_seqs=max(batch), num_threads=threads, speculate="off"
    )
    draft_dir = None if draft_model is None else resolve_model(draft_model, say=say)
    with_drafts = replace(
        usual, speculate="off" if draft_dir else "ngram", draft_model=draft_dir, draft_dtype=draft_dtype
    )
    rows = []
    runtime_config = RuntimeConfig(tokenizer=model_dir, pooled=pooled_module_ids())
    with Runtime(runtime_config) as runtime, Runtime(runtime_config) as other:
        module_ids = []
        for each in (runtime, other):
            each.wait_ready()
            module_ids.append(each.mk_module(guest_path("regex").read_bytes()).module_id)
        with (
            Engine(usual, runtime=runtime) as plain,
            Engine(with_drafts, runtime=other) as drafting,
        ):
            for size in batch:
                for name, prompts in kinds.items():
                    for constrained in (False, True):
                        say(f"batch {size}, {name}{', constrained' if constrained else ''}: {rounds} rounds")
                        calls = [ControllerCall(each, r"(.|\n)*") if constrained else None for each in module_ids]
                        both = list(zip((plain, drafting), calls, strict=True))
                        rows.append(
                            {"batch": size, "kind": name, "constrained": constrained}
                            | _compare(both, prompts[:num_prompts], size, num_tokens, rounds)
                        )
    if json:
        print_json(rows)
    else:
        _print_table(rows)
    check_texts(rows)


def check_texts(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise AiciError if drafts have changed a text."""
    if changed := [f"{row['kind']} at batch {row['batch']}" for row in rows if not row["same_texts"]]:
        raise AiciError(f"drafts have changed a text: {', '.join(changed)}")


def _compare(
    both: "Sequence[tuple[Engine, ControllerCall | None]]",
    prompts: Sequence[str],
    size: int,
    num_tokens: int,
    rounds: int,
) -> dict[str, Any]:
    """Run all prompts on both engines, in turn, in groups of `size` prompts; prompts are repeated in larger groups."""
    groups = [prompts[at : at + size] for at in range(0, len(prompts), size)]
    groups = [[group[at % len(group)] for at in range(size)] for group in groups]
    runs: list[list[_Run]] = [[], []]
    pairs = list(zip(both, runs, strict=True))
    for number, group in enumerate(group for _ in range(rounds) for group in groups):
        for (engine, call), done in pairs if number % 2 else reversed(pairs):
            done.append(_run(engine, group, call, num_tokens))
    plain, drafted = runs
    seconds = [sum(run.wall_s for run in done) for done in runs]
    tokens = [sum(run.num_tokens for run in done) for done in runs]
    cpu = [sum(run.cpu_s for run in done) for done in runs]
    passes = [sum(run.num_passes for run in done) for done in runs]
    return {
        "plain_tokens_per_s": tokens[0] / seconds[0],
        "drafted_tokens_per_s": tokens[1] / seconds[1],
        "ratio": seconds[0] / seconds[1],
        "cpu_ratio": cpu[0] / cpu[1],
        "plain_passes": passes[0],
        "drafted_passes": passes[1],
        "tokens_a_pass": tokens[1] / passes[1],
        "drafted": sum(run.num_drafted for run in drafted),
        "accepted": sum(run.num_accepted for run in drafted),
        "same_texts": [run.texts for run in plain] == [run.texts for run in drafted],
    }


def _run(engine: "Engine", prompts: Sequence[str], call: "ControllerCall | None", num_tokens: int) -> _Run:
    _generate(engine, prompts, call, 1)
    before, began, cpu_s = engine.get_stats(), time.perf_counter(), time.process_time()
    ends = _generate(engine, prompts, call, num_tokens)
    wall_s, cpu_s, after = time.perf_counter() - began, time.process_time() - cpu_s, engine.get_stats()
    return _Run(
        [[token.token_id for token in end.tokens] for end in ends],
        wall_s,
        cpu_s,
        after["num_steps"] - before["num_steps"],
        after["drafted_tokens"] - before["drafted_tokens"],
        after["accepted_tokens"] - before["accepted_tokens"],
    )


def _generate(
    engine: "Engine", prompts: Sequence[str], call: "ControllerCall | None", num_tokens: int
) -> "list[FinishEvent]":
    from aici_engine.config import SamplingParams
    from aici_engine.request import Request

    greedy = SamplingParams(temperature=0.0, max_tokens=num_tokens)
    handles = [engine.submit(Request(prompt=prompt, sampling=greedy, controller=call)) for prompt in prompts]
    return [handle.wait() for handle in handles]


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    print_table(
        (
            "batch",
            "prompts",
            "constraint",
            "off tok/s",
            "drafts tok/s",
            "ratio",
            "CPU ratio",
            "tokens/pass",
            "right",
            "same texts",
        ),
        (
            [
                row["batch"],
                row["kind"],
                "yes" if row["constrained"] else "no",
                f"{row['plain_tokens_per_s']:.1f}",
                f"{row['drafted_tokens_per_s']:.1f}",
                f"{row['ratio']:.2f}",
                f"{row['cpu_ratio']:.2f}",
                f"{row['tokens_a_pass']:.2f}",
                f"{row['accepted']}/{row['drafted']}",
                "yes" if row["same_texts"] else "NO",
            ]
            for row in rows
        ),
        num_left=3,
    )
