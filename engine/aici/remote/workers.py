"""Threads that run work in order of arrival."""

import os
import queue
import threading
from collections.abc import Callable


class Workers:
    """At most `limit` threads, started when needed, ended with the process. Work must not raise."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._num_threads = 0
        self._num_idle = 0

    def submit(self, work: Callable[[], None]) -> None:
        if os.getpid() != self._pid:
            self._begin()  # a forked child has no thread of the parent's
        with self._lock:
            if self._num_idle:
                self._num_idle -= 1
            elif self._num_threads < self._limit:
                self._num_threads += 1
                threading.Thread(target=self._run, name="aici-remote", daemon=True).start()
        self._work.put(work)

    def close(self) -> None:
        """End the threads after the waiting work."""
        with self._lock:
            for _ in range(self._num_threads):
                self._work.put(None)
            self._num_threads = self._num_idle = 0

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            with self._lock:
                self._num_idle += 1
