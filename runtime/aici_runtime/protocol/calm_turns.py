"""The usual turn, in few steps for each sequence: all guests are there, none is late, no fork is in the making, and
every reply is a mask and nothing else. `V1Ops` serves all other turns, and turns that begin as usual and end
otherwise: a reply stays in its worker slot until the next request, so it can be read again. `CalmLoop` does the same in
C, also for guests that only hear of a token and give no mask."""

from typing import TYPE_CHECKING

from aici_base.ids import SeqId
from aici_runtime.memory.mask_region import MaskRegion
from aici_runtime.protocol.guest_sequences import GuestSequence, GuestSequences
from aici_runtime.protocol.worker_results import usual_mid_reply, usual_turn_reply
from aici_runtime.turn_message import CalmTurn
from aici_runtime.workers import worker_requests
from aici_runtime.workers.worker_requests import MID, POST, PRE, TURN

if TYPE_CHECKING:
    from aici_runtime.supervision.worker_handle import WorkerHandle


class CalmTurns:
    """Sends the requests of a turn and reads the replies. The masks go to the v1 rows of `masks`."""

    def __init__(self, sequences: GuestSequences, masks: MaskRegion) -> None:
        self._sequences = sequences
        self._masks = masks
        self._rows = masks.v1_rows
        self._begun: list[tuple[GuestSequence, WorkerHandle]] = []

    def begin(self, turn: CalmTurn) -> bool:
        """Send the requests. Return False, with nothing sent, if the turn is not usual."""
        ids, asked, told, _, _ = turn
        asked_ids = set(asked)
        # Each sequence is named once, and each guest that is asked computes a mask.
        if len({*ids}) < len(ids) or len(asked_ids) < len(asked) or not told.keys() <= asked_ids <= {*ids}:
            return False
        begun: list[tuple[GuestSequence, WorkerHandle]] = []
        for seq_id in ids:
            sequence = self._sequences.get(seq_id)
            if sequence is None or sequence.late is not None or sequence.held_reply is not None:
                return False
            worker = sequence.worker
            if worker is None or worker.is_lowered:
                return False
            begun.append((sequence, worker))
        if not self._masks.fits_rows(len(ids)):
            return False
        for row, seq_id in enumerate(ids):
            sequence, worker = begun[row]
            if seq_id in told:
                sequence.latest_op = TURN
                worker.send_request(worker_requests.turn_of_token(seq_id, *told[seq_id], row))
            elif seq_id in asked_ids:
                sequence.latest_op = TURN
                worker.send_request(worker_requests.turn(seq_id, None, row))
            else:
                sequence.latest_op = MID
                worker.send_request(worker_requests.mid(row, (seq_id,)))
        self._sequences.ring(worker for _, worker in begun)
        self._begun = begun
        return True

    def took_over(self, turn: CalmTurn) -> list[SeqId]:
        """Note the requests that the loop in C has sent, in place of `begin`. Return the sequences."""
        asked = set(turn.asked)
        for seq_id in turn.ids:
            self._sequences[seq_id].latest_op = TURN if seq_id in asked else MID
        ids = set(turn.ids)
        without_mask = [seq_id for seq_id in turn.asked if seq_id not in ids]
        for seq_id in without_mask:
            self._sequences[seq_id].latest_op = POST if seq_id in turn.told else PRE
        return [*turn.ids, *without_mask]

    def finish(self, deadline: float) -> list[int] | None:
        """Wait for the replies until `deadline`, and write the masks. Return the microseconds of each guest.

        Return None if a reply is missing or not usual.
        """
        begun, self._begun = self._begun, []
        micros = [0] * len(begun)
        for row in range(len(begun) - 1, -1, -1):  # the last first, as in `GuestSequences.collect`
            sequence, worker = begun[row]
            reply = worker.wait_response(deadline)
            if not reply:
                return None
            usual = usual_turn_reply(reply) if sequence.latest_op == TURN else usual_mid_reply(reply)
            if usual is None:
                return None
            micros[row] = int(usual[1])
            self._rows.put(row, worker.slot.mask(self._rows.row_bytes))
        return micros
