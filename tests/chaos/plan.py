"""The faults of a run, in an order that is fixed by the seed: every kind as often as every other."""

import random
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple


class Fault(NamedTuple):
    """`kind`: what happens. `component`: the short name of the process; `aici` is the API process."""

    kind: str
    component: str

    def __str__(self) -> str:
        return f"{self.kind} {self.component}"


KINDS: Final = {
    "kill": (
        "aici",
        "aici-engine",
        "aicirt",
        "aicirt-spawner",
        "aicirt-side",
        "aicirt-template",
        "aicirt-pool",
    ),
    "stop": ("aici", "aici-engine", "aicirt", "aicirt-spawner", "aicirt-side", "aicirt-pool"),
    "freeze": ("aici-engine", "aicirt", "aicirt-spawner", "aicirt-side", "aicirt-pool"),
    "disk": ("aici", "aici-engine"),
    "descriptors": ("aici", "aici-engine"),
    "memory": ("aici", "aici-engine"),
}
"""Components by kind. `stop`: for a moment that is too short for a hang. `freeze`: for ever. The others are
shortages."""

FAULTS: Final = tuple(Fault(kind, component) for kind, components in KINDS.items() for component in components)


def chosen(names: Sequence[str]) -> tuple[Fault, ...]:
    """Return the faults with one of these names, all without names. Raises ValueError for an unknown name."""
    known = {str(fault): fault for fault in FAULTS}
    if unknown := set(names) - set(known):
        raise ValueError(f"no such fault: {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    return tuple(known[name] for name in names) if names else FAULTS


def rounds(faults: Sequence[Fault], rng: random.Random) -> Iterator[list[Fault]]:
    """Yield the faults again and again, each time in another order."""
    while True:
        shuffled = list(faults)
        rng.shuffle(shuffled)
        yield shuffled
