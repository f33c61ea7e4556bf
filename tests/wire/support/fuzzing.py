"""A runtime under fuzzing: the number of examples, a tally of actions, and a neighbour guest that must not be
affected."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings

from tests.wire.support import puppet
from tests.wire.support.engine import Engine, Version
from tests.wire.support.guests import Guests
from tests.wire.support.leaks import holdings, until_no_more_than
from tests.wire.support.shapes import check_entry

TEMPLATE = "aicirt-template"


@dataclass
class Fuzz:
    """`examples` None: a few examples, always the same. `done`: number of actions by kind."""

    examples: int | None
    done: Counter[str] = field(default_factory=Counter)

    def settings(self, few: int) -> settings:
        return settings(
            max_examples=self.examples or few,
            derandomize=self.examples is None,
            database=None if self.examples is None else settings().database,
            deadline=None,
            print_blob=self.examples is not None,
            suppress_health_check=list(HealthCheck),
        )


class Arena:
    """An engine with a neighbour: a sequence whose masks always allow tokens 1 and 2."""

    def __init__(self, engine: Engine, fuzz: Fuzz) -> None:
        self.engine, self.fuzz = engine, fuzz
        self.guests = Guests(engine)
        self.version: Version = engine.version
        for number in range(18):  # after this warm-up everything made on first use exists, templates too
            self.guests.free(self.guests.bind(create=puppet.spin(1 + number % 6)))
        self.neighbour = self.guests.bind()
        # with four templates, each has its next guest ready sooner or later
        self._before = holdings(engine.process.pid) | Counter(
            {f"{TEMPLATE} processes": 8, f"{TEMPLATE} descriptors": 160}
        )

    def op(self) -> dict[str, Any]:
        return {"id": self.neighbour}

    def check_neighbour(self, data: Any = None) -> None:
        """Check the neighbour in the data of this response, or in a step of its own."""
        entry = self.guests.mid(self.neighbour) if data is None else data["seqs"][str(self.neighbour)]
        result = check_entry(entry)
        assert (entry["error"], entry["logs"]) == ("", "")
        if self.version == "v1":
            assert result is None
        else:
            (branch,) = result["branches"]
            assert type(branch["sample_mask"]) is int
            assert branch["splices"] == []

    def check_leaks(self) -> None:
        """Check for leaks after everything but the neighbour has been freed."""
        self.engine.is_well()
        until_no_more_than(self._before, self.engine.process.pid)
