"""Our guests as a mask engine."""

import json

from aici_controllers.catalog import guest_names
from aici_controllers.in_process_guest import GuestFailedError, InProcessGuest, InProcessRuntime
from aici_controllers.mask_bench.cases import MaskCase
from aici_controllers.mask_bench.engine import CannotError
from aici_controllers.mask_bench.vocabulary import BenchVocabulary

_SCHEMA = '{"schema":%s,"whitespace":"flexible","objects":"open"}'
"""Peers leave objects open, as the specification does."""


class Ours:
    name = "aici"

    def __init__(self, vocabulary: BenchVocabulary) -> None:
        self._guests = InProcessRuntime(vocabulary.loaded)

    def close(self) -> None:
        self._guests.close()

    def prepare(self, case: MaskCase) -> None:
        """Compile the guest of `case`, so that `start` does not include compilation. Raise CannotError."""
        guest, _ = guest_of(case)
        if guest not in guest_names():
            raise CannotError(f"the guest {guest} is not built")
        self._guests.compile(guest)
        self._guests.keep_snapshot(guest)

    def start(self, case: MaskCase) -> InProcessGuest:
        return self._start(case)

    def start_first(self, case: MaskCase) -> InProcessGuest:
        """Start as the first request for the guest, without the snapshot that this request leaves behind."""
        return self._start(case, is_first=True)

    def _start(self, case: MaskCase, *, is_first: bool = False) -> InProcessGuest:
        try:
            return self._guests.start(*guest_of(case), is_first=is_first)
        except GuestFailedError as error:
            raise CannotError(str(error)) from error


def guest_of(case: MaskCase) -> tuple[str, str]:
    """Return the guest for the case, and its argument. Raise CannotError."""
    notations = case.notations
    if "choices" in notations:
        return "choices", notations["choices"]
    if "substring" in notations:
        return "substring", json.dumps({"text": notations["substring"], "end": ""})
    if "schema" in notations:
        return "json_schema", _SCHEMA % notations["schema"]
    if "yacc" in notations:
        return "grammar", notations["yacc"]
    if "regex" in notations:
        return "regex", notations["regex"]
    raise CannotError(f"no guest takes any of {', '.join(notations)}")
