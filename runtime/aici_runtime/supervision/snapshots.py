"""The snapshots of modules for the side process: found in the store, or made once by a worker.

`guests/snapshot.py` says what a snapshot is.
"""

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from aici_base.errors import AiciError
from aici_runtime.abi import READ_VOCABULARY
from aici_runtime.guests.snapshot import MAX_FILE_BYTES
from aici_runtime.modules.registry import Registry
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary

_log = logging.getLogger(__name__)


class Snapshots:
    """Snapshots for one vocabulary. A module without a snapshot is remembered as such while the process lives."""

    def __init__(self, registry: Registry, vocabulary: LoadedVocabulary) -> None:
        self._registry = registry
        self._vocabulary = vocabulary
        self._turns: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._without: set[str] = set()
        self._reads_ahead: dict[str, bool] = {}

    @cached_property
    def _vocabulary_id(self) -> str:
        return self._vocabulary.digest()

    def find(self, module_id: str, make: Callable[[], int | None]) -> Path | None:
        """Return the snapshot of a module, made now if necessary; None if the module has none.

        `make` returns a descriptor of a file with the snapshot, or None. Requests for the same module wait, because
        the snapshot takes no longer than one start without a snapshot.
        """
        if module_id in self._without:
            return None
        path = self._registry.snapshot(module_id, self._vocabulary_id)
        if path.is_file():
            return path
        with self._turns[module_id]:
            if module_id in self._without:
                return None
            if path.is_file() or (self.reads_ahead(module_id) and self._make(module_id, make)):
                return path
            self._without.add(module_id)
        return None

    def reads_ahead(self, module_id: str) -> bool:
        """Whether guests of the module can read the vocabulary ahead: without the export's name they cannot."""
        if module_id not in self._reads_ahead:
            self._reads_ahead[module_id] = READ_VOCABULARY.encode() in self._registry.read(module_id)
        return self._reads_ahead[module_id]

    def _make(self, module_id: str, make: Callable[[], int | None]) -> bool:
        content = make()
        if content is None:
            return False
        try:
            if os.fstat(content).st_size > MAX_FILE_BYTES:  # the worker may be anybody's by now
                return False
            self._registry.keep_snapshot(module_id, self._vocabulary_id, content)
        except (AiciError, OSError) as error:  # no room, a read-only folder
            _log.info("guests of %s start without a snapshot: %s", module_id, error)
            return False
        finally:
            os.close(content)
        return True
