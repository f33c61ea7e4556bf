"""The roofline of our kernels: operations per second by kind of work, beside a plain loop of the same instructions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from aici_base.ids import SeqId, TokenId
from aici_cli.bench.engines.compare import Plan, Prompts
from aici_engine.cache.ids import PageId
from aici_engine.cache.storage import KVStorage
from aici_engine.config import Dtype, EngineConfig
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.native.backend import make_model
from aici_engine.native.bindings import Format
from aici_engine.native.model import NativeModel
from aici_engine.native.work_profile import KINDS, Work, peak_rate, profile_work
from aici_engine.step_input import Chunk

_PAGE: Final = 16
_STEP: Final = 512
"""Tokens of a prompt in one step."""


def measure_roofline(plan: Plan, dtype: Dtype, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yield a row for the prompts and a row for the decoding of every batch size; none if no kernels run the model."""
    if plan.device != "cpu":
        return
    config = EngineConfig(model_dir=plan.model, dtype=dtype, num_threads=plan.threads)
    model = make_model(config, ComputeDevice("cpu", _PAGE))
    if not isinstance(model, NativeModel):
        say(f"{dtype}: the kernels do not run this model, so there is no roofline")
        return
    cache_format = Format.F32 if model.weight_format is Format.F32 else Format.BF16
    peaks = {form: peak_rate(model.pool, form) for form in {model.weight_format, model.head_format, cache_format}}
    limits = {
        "products": peaks[model.weight_format],
        "head": peaks[model.head_format],
        "attention": peaks[cache_format],
    }
    for batch in plan.batches:
        say(f"{dtype}, batch {batch}, roofline")
        for name, works in _Steps(model, plan, batch).measure():
            kinds = {
                kind: {"seconds": work.seconds, "rate": work.rate, "peak": limits.get(kind, 0.0)}
                for kind, work in works.items()
            }
            yield {"measure": "roofline", "dtype": dtype, "batch": batch, "pass": name, "kinds": kinds}


class _Steps:
    """Prompts and decoding of one batch, without scheduler and sampling."""

    def __init__(self, model: NativeModel, plan: Plan, batch: int) -> None:
        self._model, self._plan = model, plan
        self._prompts = [
            [TokenId(token) for token in prompt] for prompt in Prompts(plan.model).take(batch, plan.num_prompt)
        ]
        self._num_pages = -(-(plan.num_prompt + plan.num_new) // _PAGE)

    def measure(self) -> Iterator[tuple[str, Mapping[str, Work]]]:
        """Yield the fastest of `rounds` prefills, and the fastest of the decoding steps."""
        storage = self._model.make_storage(num_pages=self._num_pages * len(self._prompts), page_size=_PAGE)
        self._prefill(storage)  # a warm-up
        yield "prompt", self._fastest(self._plan.rounds, lambda _: self._prefill(storage))
        yield "decoding", self._fastest(self._plan.num_new, lambda number: self._decode(storage, number))

    def _fastest(self, count: int, run: Callable[[int], None]) -> Mapping[str, Work]:
        profiles = []
        for number in range(count):
            with profile_work(self._model.pool) as profile:
                run(number)
            profiles.append(profile.works)
        return min(profiles, key=lambda works: sum(work.seconds for work in works.values()))

    def _decode(self, storage: KVStorage, number: int) -> None:
        at = self._plan.num_prompt + number
        self._model.forward(storage, [self._chunk(i, prompt[:1], at) for i, prompt in enumerate(self._prompts)])

    def _prefill(self, storage: KVStorage) -> None:
        """Compute the prompts as the engine does: several short prompts share a step, a long prompt has several."""
        parts = [
            self._chunk(i, prompt[at : at + _STEP], at)
            for i, prompt in enumerate(self._prompts)
            for at in range(0, len(prompt), _STEP)
        ]
        together = max(1, _STEP // self._plan.num_prompt)
        for first in range(0, len(parts), together):
            self._model.forward(storage, parts[first : first + together])

    def _chunk(self, index: int, tokens: Sequence[TokenId], start: int) -> Chunk:
        pages = [PageId(page) for page in range(index * self._num_pages, (index + 1) * self._num_pages)]
        return Chunk(SeqId(index), list(tokens), start, pages, 1)


def print_roofline(rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    print("roofline: share of the time, 10^9 operations per second, and that as a share of a plain loop's")
    print(f"{'dtype':<9} {'pass':<8} {'batch':>5}  " + " ".join(f"{kind:>19}" for kind in KINDS))
    for row in rows:
        kinds = row["kinds"]
        total = sum(kind["seconds"] for kind in kinds.values())
        cells = [_cell(kinds[kind], total) for kind in KINDS]
        print(f"{row['dtype']:<9} {row['pass']:<8} {row['batch']:>5}  " + " ".join(f"{cell:>19}" for cell in cells))


def _cell(kind: Mapping[str, float], total: float) -> str:
    share = f"{kind['seconds'] / total:.0%}"
    return f"{share} {kind['rate'] / 1e9:.0f} {kind['rate'] / kind['peak']:.0%}" if kind["peak"] else share
