"""Which guests start, and when: a guest is a process, so few guests live or start at a time."""

import time
from bisect import insort
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from aici_base.errors import AiciError, ControllerError, UsageError
from aici_base.ids import SeqId
from aici_engine.control.guest_errors import guest_error
from aici_engine.control.runtime import ControllerRuntime
from aici_engine.sequences.sequence import Sequence

_Start: TypeAlias = tuple[Sequence, Callable[[BaseException | None], None]]


class GuestStarts:
    """The guests that wait for a place, and the owners of the guests that have one. Used by the engine's thread alone.

    At most `max_guests` guests live or start at a time; further guests start when guests leave. `more_guests`: further
    places, for the first guests of owners without a guest, so that an owner with long runs in all places does not keep
    others out. Forks do not count: the runtime bounds the number of forks.
    """

    def __init__(self, *, max_guests: int, more_guests: int) -> None:
        self._max_guests = max_guests
        self._more_guests = more_guests
        self._waiting: list[_Start] = []
        self._owners: dict[SeqId, str] = {}
        """Of the guests that live or start, by sequence."""
        self._begun_at: dict[SeqId, float] = {}

    def add(self, seq: Sequence, done: Callable[[BaseException | None], None]) -> None:
        """Let the guest of `seq` wait for a place. `done` is called once, on any thread, with the error if one
        occurred."""
        insort(self._waiting, (seq, done), key=lambda start: start[0].order)

    def remove(self, seq_id: SeqId) -> None:
        """The sequence has ended. Idempotent."""
        self._owners.pop(seq_id, None)
        self._begun_at.pop(seq_id, None)

    def begun_at(self, seq_id: SeqId) -> float | None:
        """Return when the guest began to start (time.monotonic()); None if it has not."""
        return self._begun_at.get(seq_id)

    def clear(self) -> None:
        """The runtime has died."""
        self._waiting.clear()
        self._owners.clear()

    def start(self, runtime: ControllerRuntime, *, req_id: Callable[[Sequence], str], num_leaving: int) -> None:
        """Start guests while there are places: owners in turn, and of an owner older sequences first.

        `req_id` returns the name of a sequence's request at the runtime. `num_leaving`: guests of ended sequences that
        still have their places. May raise RuntimeDiedError.
        """
        while (start := self._pop_next(num_leaving)) is not None:
            seq, done = start
            assert seq.controller is not None
            if seq.ending is not None:
                continue
            self._owners[seq.seq_id] = seq.share.owner
            self._begun_at[seq.seq_id] = time.monotonic()
            try:
                future = runtime.instantiate(
                    req_id=req_id(seq),
                    prompt=list(seq.tokens),
                    module_id=seq.controller.module_id,
                    module_arg=seq.controller.argument,
                    seed=(seq.sampling.seed or 0) % 2**64,
                    user=seq.share.owner,
                )
            except AiciError as error:
                done(error)
            except TypeError as error:
                # The argument comes from the caller, so a failure to encode the argument must not end the engine.
                done(UsageError(f"the controller's argument cannot be written as JSON: {error}"))
            else:
                seq.guest.starting = True
                future.add_done_callback(lambda future, done=done: done(_plain(future.exception())))  # type: ignore[misc]

    def _pop_next(self, num_leaving: int) -> _Start | None:
        """Remove and return the next guest to start, if there is a place: of the owner with the fewest guests, by
        weight, the oldest."""
        num_places = self._max_guests - len(self._owners) - num_leaving
        if not self._waiting or num_places <= -self._more_guests:
            return None
        num_guests = Counter(self._owners.values())
        if num_places <= 0 and all(seq.share.owner in num_guests for seq, _ in self._waiting):
            return None
        shares = (seq.share for seq, _ in self._waiting)
        turns = [num_guests[share.owner] // share.weight for share in shares]
        return self._waiting.pop(turns.index(min(turns)))


def _plain(error: BaseException | None) -> BaseException | None:
    return guest_error(error.message, hint=error.hint) if isinstance(error, ControllerError) else error
