"""`aici bench quality`: the loss of quality in every weight format."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from aici_cli.output import print_json, say
from aici_cli.tables import print_table

if TYPE_CHECKING:
    from aici_base.ids import TokenId
    from aici_engine.config import Dtype, KVCacheDtype
    from aici_engine.engine import Engine

_WINDOW = 512
_NUM_PROMPTS = 16
_PROMPT = 24


def quality(
    model: Annotated[str | None, typer.Option(help="A model's name, folder, .gguf file or hub repository.")] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(help="Weight format; may be repeated, the first is the reference (default: all)."),
    ] = None,
    kv_cache_dtype: Annotated[
        list[str] | None,
        typer.Option(help="Format of keys and values, of each dtype; may be repeated (default: all)."),
    ] = None,
    num_tokens: Annotated[int | None, typer.Option(min=64, help="Use only the first tokens of the text.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the engine (default: torch's).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure perplexity on a text shipped with aici, and agreement with the first dtype and format of keys and values.

    `same`: share of positions with the same most likely token. `greedy`: mean number of tokens until a greedy
    continuation differs.
    """
    from aici_base.errors import UsageError
    from aici_cli.bench.engines.compare import PROSE
    from aici_engine.cluster.headers import WEIGHT_BYTES
    from aici_engine.config import KV_CACHE_DTYPES, EngineConfig
    from aici_engine.engine import Engine
    from aici_engine.store.resolve import resolve_model

    folder = resolve_model(model, say=say)
    # EngineConfig rejects unknown dtypes.
    wanted = dict.fromkeys(cast("Sequence[Dtype]", dtype) if dtype else WEIGHT_BYTES)
    formats = dict.fromkeys(cast("Sequence[KVCacheDtype]", kv_cache_dtype) if kv_cache_dtype else KV_CACHE_DTYPES)
    configs = [
        EngineConfig(
            model_dir=folder,
            dtype=one,
            kv_cache_dtype=kv_format,
            num_threads=threads,
            max_context=_WINDOW + _PROMPT,
        )
        for one in wanted
        for kv_format in formats
    ]
    measured: dict[tuple[str, str], Measured] = {}
    for config in configs:
        say(f"{config.dtype}, keys and values {config.kv_cache_dtype}: scoring and decoding")
        try:
            engine = Engine(config)
        except UsageError as error:
            if kv_cache_dtype or error.param != "kv_cache_dtype":
                raise
            say(f"left out: {error.message}")
            continue
        with engine:
            text = engine.tokenize(PROSE.read_text())[:num_tokens]
            measured[config.dtype, config.kv_cache_dtype] = measure(engine, text)
    first = next(iter(measured.values()))
    rows = [
        {"dtype": name, "kv_cache_dtype": kv_format} | result.compared(first)
        for (name, kv_format), result in measured.items()
    ]
    if json:
        print_json(rows)
        return
    print_table(
        ("dtype", "keys, values", "tokens", "perplexity", "×", "same", "greedy"),
        (
            (
                row["dtype"],
                row["kv_cache_dtype"],
                row["tokens"],
                f"{row['perplexity']:.3f}",
                f"{row['perplexity_ratio']:.4f}",
                f"{row['same_likeliest']:.1%}",
                f"{row['same_greedy']:.1f}",
            )
            for row in rows
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """`likeliest`: the most likely token at every position; `greedy`: the continuation of every prompt."""

    logprobs: Sequence[float]
    likeliest: Sequence[int]
    greedy: Sequence[Sequence[int]]

    def compared(self, other: "Measured") -> dict[str, Any]:
        perplexity, others = (math.exp(-statistics.fmean(one.logprobs)) for one in (self, other))
        pairs = zip(self.greedy, other.greedy, strict=True)
        return {
            "tokens": len(self.logprobs),
            "perplexity": perplexity,
            "perplexity_ratio": perplexity / others,
            "same_likeliest": statistics.fmean(a == b for a, b in zip(self.likeliest, other.likeliest, strict=True)),
            "same_greedy": statistics.fmean(_common(a, b) for a, b in pairs),
        }


def measure(engine: "Engine", text: "Sequence[TokenId]", *, num_greedy: int = 48) -> Measured:
    """Score the text in independent windows, then decode greedy tokens after pieces of the text."""
    from aici_engine.config import SamplingParams
    from aici_engine.events import ScoreEvent
    from aici_engine.request import Request

    ask = SamplingParams(max_tokens=0, logprobs=1)
    windows = [text[at : at + _WINDOW] for at in range(0, len(text), _WINDOW)]
    handles = [engine.submit(Request(prompt=window, score_from=0, sampling=ask)) for window in windows]
    scores = [
        score
        for handle in handles
        for event in handle.events()
        if isinstance(event, ScoreEvent)
        for score in event.scores
        if score.logprob is not None  # the first token of a window has no score
    ]
    greedy = SamplingParams(temperature=0.0, max_tokens=num_greedy, ignore_eos=True)
    places = range(0, len(text) - _PROMPT, max(1, (len(text) - _PROMPT) // _NUM_PROMPTS))
    prompts = [engine.submit(Request(prompt=text[at : at + _PROMPT], sampling=greedy)) for at in places]
    return Measured(
        logprobs=[score.logprob for score in scores if score.logprob is not None],
        likeliest=[int(score.top_logprobs[0][0]) for score in scores],
        greedy=[[int(token.token_id) for token in handle.wait().tokens] for handle in prompts],
    )


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix."""
    return next((k for k, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))
