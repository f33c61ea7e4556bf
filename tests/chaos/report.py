"""The tables of a chaos run."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from tests.chaos.clients import End, Ends
from tests.chaos.faults import NONE
from tests.chaos.plan import Fault

_NAMES = {"aici": "API process", "aici-engine": "engine", "aicirt": "runtime", "aicirt-pool": "pool of guests"}


def of_requests(ends: Ends, seconds: float) -> str:
    """Return how the requests of each protocol ended."""
    took = ends.seconds or [0.0]
    p99 = statistics.quantiles(took, n=100)[98] if len(took) > 1 else took[0]
    lines = [
        f"{ends.total} requests in {seconds:.0f} s, p50 {statistics.median(took):.2f} s, p99 {p99:.2f} s,"
        f" longest {max(took):.2f} s",
        f"{'':14}" + "".join(f"{end:>9}" for end in End),
    ]
    lines += [
        f"{protocol:14}" + "".join(f"{ends.counts[protocol, end]:>9}" for end in End)
        for protocol in sorted({protocol for protocol, _ in ends.counts})
    ]
    return "\n".join(lines)


def of_outages(outages: Mapping[Fault, Sequence[float]]) -> str:
    """Return the outages by fault."""
    lines = [f"{'fault':26}{'times':>6}{'median s':>10}{'longest s':>10}"]
    for fault, seconds in sorted(outages.items()):
        lines.append(f"{fault!s:26}{len(seconds):>6}{statistics.median(seconds):>10.2f}{max(seconds):>10.2f}")
    lines.append(
        "until a plain and a controlled request have ended well; `none`: the same two requests without a fault"
    )
    return "\n".join(lines)


def of_components(outages: Mapping[Fault, Sequence[float]]) -> str:
    """Return the longest outage of each component, and its fault."""
    longest: dict[str, tuple[float, Fault]] = defaultdict(lambda: (0.0, NONE))
    for fault, seconds in outages.items():
        if fault != NONE:
            longest[fault.component] = max(longest[fault.component], (max(seconds), fault))
    lines = ["longest outage by component"]
    lines += [
        f"{_NAMES.get(component, component):18}{worst_s:>8.2f} s  {fault.kind}"
        for component, (worst_s, fault) in sorted(longest.items())
    ]
    return "\n".join(lines)


def of_reasons(ends: Ends) -> str:
    """Return the most frequent reasons of refusals and failures."""
    return "\n".join(["most frequent reasons", *(f"{number:>6} {why}" for why, number in ends.reasons.most_common(12))])
