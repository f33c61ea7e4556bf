"""The engines that can be measured, by name."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aici_controllers.mask_bench.engine import Engine
from aici_controllers.mask_bench.llguidance import LLGuidance
from aici_controllers.mask_bench.ours import Ours
from aici_controllers.mask_bench.outlines import Outlines
from aici_controllers.mask_bench.vocabulary import BenchVocabulary
from aici_controllers.mask_bench.xgrammar import XGrammar

PEERS: Final[Mapping[str, str]] = {"llguidance": "llguidance", "xgrammar": "xgrammar", "outlines-core": "outlines_core"}
"""The package that each imports."""

_MAKERS: Final[Mapping[str, Callable[[BenchVocabulary], Engine]]] = {
    "aici": Ours,
    "llguidance": LLGuidance,
    "xgrammar": XGrammar,
    "outlines-core": Outlines,
}


def installed_peers() -> list[str]:
    return [name for name, package in PEERS.items() if importlib.util.find_spec(package) is not None]


def make_engines(names: Sequence[str], vocabulary: BenchVocabulary) -> list[Engine]:
    return [_MAKERS[name](vocabulary) for name in names]
