"""The order of service among the sequences of several owners.

The first sequences of each owner have turn 0, as many as the owner's weight; the owner's next sequences have turn 1,
and so on. A sequence with a smaller turn is served first; within a turn, the older sequence. So an owner with forty
sequences delays another owner's first sequence no more than an owner with one, and places that an owner does not use go
to other owners. With a single owner, the order is the age.

When a sequence of an owner ends, the owner's waiting sequences count as if they came now (`Clock.right_at`). Otherwise,
with a place for one sequence alone, the owner's forty would all run before another owner's first. A preempted sequence
keeps its age: the client has a part of the answer.

Sequences in the background come after all others, whatever the owner, and have turns among themselves too.

Turns depend on the present sequences: when a sequence of an owner ends, the owner's later sequences move up. The oldest
of all sequences is always first.
"""

import math
from collections import defaultdict
from collections.abc import Collection
from typing import Final

from aici_engine.sequences.sequence import Sequence

OVER: Final = math.inf
"""The turn of sequences above `most` of their owner: they wait until another sequence of the owner ends."""

BACKGROUND: Final = 1e9
"""The turns of sequences in the background begin here."""


def in_turn(sequences: Collection[Sequence]) -> dict[Sequence, float]:
    """Return the turn of every sequence, in the order of service. `sequences` must be sorted by age.

    The sequences a1, a2, a3 of one owner and b1 of another are served in the order a1 (turn 0), b1 (0), a2 (1), a3 (2).
    """
    is_plain = all(seq.share.most is None and not seq.clock.is_background for seq in sequences)
    if is_plain and len({seq.share.owner for seq in sequences}) <= 1:
        return dict.fromkeys(sequences, 0)
    turns: list[tuple[float, Sequence]] = []
    places: defaultdict[str, int] = defaultdict(int)
    for seq in sequences:
        share, place = seq.share, places[seq.share.owner]
        places[share.owner] += 1
        turn = place // share.weight + (BACKGROUND if seq.clock.is_background else 0)
        turns.append((OVER if share.most is not None and place >= share.most else turn, seq))
    turns.sort(key=lambda pair: (pair[0], pair[1].clock.right_at))
    return {seq: turn for turn, seq in turns}


def without_background(sequences: list[Sequence]) -> list[Sequence]:
    """Return the sequences that are not in the background; without such sequences, return all."""
    return [seq for seq in sequences if not seq.clock.is_background] or sequences
