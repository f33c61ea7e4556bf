"""Calm turns in C, from the engine's message to the answer (`guests/native/src/calm_turns.c`). While calm turns follow
each other, the stepper runs no Python. `CalmTurns` is the reference, and serves where there is no library; for guests
that give no mask, `V1Ops` is."""

import ctypes
import time

from aici_runtime.channels.mailbox import Mailbox
from aici_runtime.channels.semaphore_mailbox import MailboxAddresses, addresses_of
from aici_runtime.guests.native import library
from aici_runtime.guests.native.structures import NO_POOL, CCalmTurns, CMailbox, CSequence, CSlotLayout
from aici_runtime.memory.mask_region import MaskRegion
from aici_runtime.memory.worker_slots import SLOT_OFFSETS
from aici_runtime.protocol.guest_sequences import GuestSequence, GuestSequences
from aici_runtime.supervision.guest_cores import GuestCores
from aici_runtime.turn_message import NO_CORE

_BEGUN = 1
_LONGEST_S = 1e6


class CalmLoop:
    """Owns the struct of the loop, with a table of the sequences and their slots, which is made anew when they change.
    `limit_s`: the longest wait for the guests. `is_patient`: a turn may shorten it."""

    def __init__(
        self,
        code: ctypes.CDLL,
        channel: tuple[MailboxAddresses, MailboxAddresses],
        masks: MaskRegion,
        *,
        limit_s: float,
        is_patient: bool,
    ) -> None:
        requests, responses = channel
        rows, region_bytes = masks.address()
        libc = ctypes.CDLL(None)
        self._code = code
        self._struct = CCalmTurns(
            sem_wait=ctypes.cast(libc.sem_wait, ctypes.c_void_p),
            sem_post=ctypes.cast(libc.sem_post, ctypes.c_void_p),
            requests=CMailbox(*requests),
            responses=CMailbox(*responses),
            layout=CSlotLayout(*SLOT_OFFSETS),
            rows=rows,
            region_bytes=region_bytes,
            row_bytes=masks.v1_rows.row_bytes,
            limit_ns=int(min(limit_s, _LONGEST_S) * 1e9),
            is_patient=is_patient,
            engine_core=NO_CORE,
        )
        self._cores = GuestCores()
        self._version = -1
        """Of the sequences in the struct; -1 if one of them is not as it usually is."""

    def serve(self, sequences: GuestSequences) -> float | None:
        """Serve turns until a message is for Python; the message stays in the mailbox. Nothing may change `sequences`
        meanwhile.

        Return None if no guest has heard of the message. Else the guests have their requests since the returned time
        (time.monotonic()), and not all replies are there, or usual.
        """
        self._take(sequences)
        due = sequences.cpu_due()
        struct = self._struct
        struct.until_ns, struct.engine_core, struct.longest_us = max(0, int(due * 1e9)), NO_CORE, 0
        outcome = self._code.aici_serve_turns(struct)
        if outcome == _BEGUN or time.monotonic() < due:
            self._cores.lift()
        elif struct.engine_core != NO_CORE:
            self._cores.calm(struct.engine_core, struct.longest_us)
        if self._cores.cores is not None:
            sequences.keep_to(self._cores.cores)
        if outcome != _BEGUN:
            return None
        return float(self._struct.started_ns / 1e9)

    def _take(self, sequences: GuestSequences) -> None:
        is_usual = all(_is_usual(sequence) for _, sequence in sequences.items())
        if is_usual and sequences.version == self._version:
            return
        self._version = sequences.version if is_usual else -1
        pools: dict[int, int] = {}
        entries = [
            CSequence(slot=_slot(sequence), seq_id=seq_id, pool=_pool(sequence, pools))
            for seq_id, sequence in sorted(sequences.items())
        ]
        struct = self._struct
        # Assigned to the struct, the arrays live as long as the struct points to them.
        struct.sequences = (CSequence * len(entries))(*entries)
        struct.pools = (ctypes.c_void_p * len(pools))(*pools)
        struct.num_sequences, struct.num_pools = len(entries), len(pools)


def load(
    requests: Mailbox, responses: Mailbox, masks: MaskRegion, *, limit_s: float, is_patient: bool
) -> CalmLoop | None:
    """Return the loop; None without a library, and for mailboxes without semaphores."""
    code, addresses = library.load(), addresses_of(requests, responses)
    if code is None or addresses is None:
        return None
    return CalmLoop(code, addresses, masks, limit_s=limit_s, is_patient=is_patient)


def _is_usual(sequence: GuestSequence) -> bool:
    """Return whether a turn with the sequence may be usual, now that its worker lives."""
    worker = sequence.worker
    return sequence.late is None and sequence.held_reply is None and not (worker is not None and worker.is_lowered)


def _slot(sequence: GuestSequence) -> int | None:
    """Return the address of the slot; None if Python serves the turns with the sequence."""
    return sequence.worker.slot.address if sequence.worker is not None and _is_usual(sequence) else None


def _pool(sequence: GuestSequence, pools: dict[int, int]) -> int:
    if sequence.worker is None or sequence.worker.pool is None:
        return NO_POOL
    return pools.setdefault(sequence.worker.pool.slot.address, len(pools))
