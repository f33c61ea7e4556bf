"""A runtime under fuzzing: how many examples, what has been tried, and the guest next door that must not notice."""

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
    """`examples` None: a few, the same each time. `done`: what was tried, by kind."""

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
    """An engine, and a sequence whose every mask allows tokens 1 and 2, until the runtime is to be looked over."""

    def __init__(self, engine: Engine, fuzz: Fuzz) -> None:
        self.engine, self.fuzz = engine, fuzz
        self.guests = Guests(engine)
        self.version: Version = engine.version
        for number in range(18):  # what is made at the first uses, and kept, is there after this: templates, too
            self.guests.free(self.guests.bind(create=puppet.spin(1 + number % 6)))
        self.neighbour = self.guests.bind()
        # Of the four templates, each has the next guest at hand, sooner or later.
        self._before = holdings(engine.process.pid) | Counter(
            {f"{TEMPLATE} processes": 8, f"{TEMPLATE} descriptors": 160}
        )

    def op(self) -> dict[str, Any]:
        return {"id": self.neighbour}

    def check_neighbour(self, data: Any = None) -> None:
        """In this response's data, or in that of a step of its own."""
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
        """Once everything but the neighbour has been freed."""
        self.engine.is_well()
        until_no_more_than(self._before, self.engine.process.pid)
