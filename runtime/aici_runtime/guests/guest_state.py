"""The state kept outside the instance of one guest: blobs, log, variables, and the results of the running callback."""

import copy
import hashlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from aici_runtime.abi import LOG_DROP_BYTES, LOG_MAX_BYTES, NUM_BLOBS, UNBOUND_SEQ_ID, Blob

if TYPE_CHECKING:
    from aici_runtime.guests.guest import Memory


_PROCESS_ARG = int(Blob.PROCESS_ARG)
"""A plain int: looking up a member of an enumeration takes as long as a whole host call."""


class VariableStore(Protocol):
    """The variables shared by the forks of a request. Takes StorageCmd and returns StorageResp, both as JSON."""

    def execute(self, command: dict[str, Any]) -> bytes: ...


class GuestState:
    """The state of one guest. A fork of the process forks the state too, including a log not yet sent."""

    def __init__(self, *, log_max_bytes: int = LOG_MAX_BYTES) -> None:
        self.blobs: list[bytes | None] = [b""] * NUM_BLOBS
        """A blob of None is computed on first use, by the function in `late`."""
        self.late: Mapping[int, Callable[[], bytes]] = {}
        self.trie = b""
        self.memory: Memory | None = None
        self.storage: VariableStore | None = None
        self.seq_id = UNBOUND_SEQ_ID
        self.result: bytes | None = None
        self.written: list[dict[str, Any]] = []
        self.masks: list[bytearray] = []
        """The masks returned in this callback, as bits. Guest ABI v1 has at most one mask: further masks are ORed into
        it."""
        self.takes_mask = False
        self.stop_message: str | None = None
        self.identify: Callable[[], tuple[int, int]] = lambda: (0, time.perf_counter_ns())
        """Return the seed of the request and the time of arrival (time.perf_counter_ns). Called on first use by the
        guest."""
        self._identity: tuple[int, int] | None = None
        self._num_randoms = 0
        self._log = bytearray()
        self._log_max_bytes = log_max_bytes

    def begin_call(self, argument: bytes, *, takes_mask: bool = False) -> None:
        self.blobs[_PROCESS_ARG] = argument
        self.result = None
        self.masks = []
        self.takes_mask = takes_mask

    def begin_late_call(self, find_argument: Callable[[], bytes]) -> None:
        """Begin a callback whose argument is computed when the guest reads it."""
        self.begin_call(b"")
        self.find_late(_PROCESS_ARG, find_argument)

    def find_late(self, blob_id: int, find: Callable[[], bytes]) -> None:
        """Compute a blob when the guest reads it."""
        self.blobs[blob_id] = None
        self.late = {**self.late, blob_id: find}

    def late_blob(self, blob_id: int) -> bytes:
        """Return a blob, computed now if necessary. Raise KeyError if there is none."""
        found = self.blobs[blob_id]
        if found is None:
            found = self.blobs[blob_id] = self.late[blob_id]()
        return found

    def random(self, length: int) -> bytes:
        """Return random bytes. The same seed gives the same bytes, call after call; a fork continues the sequence of
        its parent."""
        self._num_randoms += 1
        return hashlib.shake_128(f"{self._known_identity()[0]} {self._num_randoms}".encode()).digest(length)

    def age_ns(self) -> int:
        return time.perf_counter_ns() - self._known_identity()[1]

    def _known_identity(self) -> tuple[int, int]:
        if self._identity is None:
            self._identity = self.identify()
        return self._identity

    def cloned(self, memory: "Memory") -> "GuestState":
        """Return the state of a fork in the same process. Parent and fork share the variables."""
        clone = copy.copy(self)
        clone.blobs, clone.written, clone._log = list(self.blobs), list(self.written), bytearray(self._log)
        clone.memory = memory
        return clone

    def log(self, text: bytes) -> None:
        self._log += text
        if len(self._log) > self._log_max_bytes:
            # Drop at least LOG_DROP_BYTES at once, so a chatty guest does not move the buffer on every line.
            del self._log[: max(min(LOG_DROP_BYTES, self._log_max_bytes), len(self._log) - self._log_max_bytes)]

    def is_of_argument(self) -> bool:
        """Whether the guest has asked for nothing so far but the vocabulary and its argument. The guest may have
        logged."""
        asked = any(blob for number, blob in enumerate(self.blobs) if number != Blob.MODULE_ARG)
        return self._identity is None and self.stop_message is None and not (asked or self.written)

    def log_so_far(self) -> bytes:
        """Return the log that waits for an answer."""
        return bytes(self._log)

    def is_silent(self) -> bool:
        """Whether log and written variables are both empty."""
        return not (self._log or self.written)

    def take_log(self) -> str:
        if not self._log:
            return ""
        text = self._log.decode("utf-8", "replace")
        self._log.clear()
        return text

    def take_out(self) -> tuple[bytes, list[dict[str, Any]]]:
        """Take out log and variables as they are, for `put_back`."""
        log = bytes(self._log)
        self._log.clear()
        return log, self.take_written()

    def put_back(self, log: bytes, written: list[dict[str, Any]]) -> None:
        """Append log and variables."""
        self.log(log)
        self.written += written

    def take_written(self) -> list[dict[str, Any]]:
        written, self.written = self.written, []
        return written
