"""The main channel: synchronous with the engine's steps, one thread, nothing slow."""

import logging

import orjson

from aici_runtime.channels import envelope
from aici_runtime.channels.channel import Mailbox, MessageTooLargeError
from aici_runtime.channels.envelope import Request, RequestError
from aici_runtime.flags import Limits, Proto
from aici_runtime.memory.mask_region import MaskRegion
from aici_runtime.memory.worker_slots import SlotTable
from aici_runtime.protocol.guest_sequences import Sequences
from aici_runtime.protocol.v1_ops import DocOps
from aici_runtime.protocol.v2_ops import HeadOps
from aici_runtime.recordings.trace import Recorder
from aici_runtime.supervision.pools import Pools
from aici_runtime.supervision.worker_supervisor import Roster
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary

_log = logging.getLogger(__name__)


class Stepper:
    """The first operation on sequences decides which of the two op sets it serves from then on."""

    def __init__(
        self,
        *,
        table: SlotTable,
        roster: Roster,
        masks: MaskRegion,
        vocabulary: LoadedVocabulary,
        limits: Limits,
        proto: Proto | None = None,
        pool_size: int = 0,
        trace: Recorder,
    ) -> None:
        self._trace = trace
        self._table = table
        self._masks = masks
        self._vocabulary = vocabulary
        self._limits = limits
        pools = Pools(table=table, roster=roster, size=pool_size)
        self._sequences = Sequences(table=table, roster=roster, pools=pools, limits=limits)
        self._ops: DocOps | HeadOps | None = None
        if proto is not None:
            self._choose(proto)

    def serve(self, requests: Mailbox, responses: Mailbox, busy_wait_ms: int) -> None:
        """Until `stop`, which has no response."""
        while True:
            message = requests.receive(busy_wait_ms)
            response = self.answer(message)
            if response is not None:
                try:
                    responses.check_fits(response)
                except MessageTooLargeError as error:
                    response = envelope.failure(None, str(error), is_user_error=False)
            self._trace.record("", message, response)
            if response is None:
                return
            responses.send(response)

    def answer(self, message: bytes) -> bytes | None:
        try:
            request = envelope.parse(message)
        except envelope.BadMessageError as error:
            return envelope.json_error(str(error))
        if request.op == "stop":
            return None
        try:
            return envelope.answer(request, self._run)
        except Exception as error:  # noqa: BLE001  a bug; the engine must get its answer all the same
            _log.exception("request failed")
            return envelope.failure(request.rid, f"internal error: {error!r}", is_user_error=False)

    def _run(self, request: Request) -> bytes:
        if request.op == "mid_process":
            ops = self._ops or self._choose("head" if "freed" in request.body else "doc")
            return ops.mid(request.body)
        if request.op == "post_pre_process":
            return self._doc_ops(request.op).post_pre(request.body)
        if request.op == "turn_process":
            return self._doc_ops(request.op).turn(request.body)
        if request.op == "tokens":
            return orjson.dumps({"vocab_size": self._vocabulary.vocab_size, "eos_token_id": self._vocabulary.eos_token})
        if request.op == "ping":
            return b'{"pong":1}'
        raise RequestError("bad op")

    def _doc_ops(self, op: str) -> DocOps:
        ops = self._ops or self._choose("doc")
        if isinstance(ops, HeadOps):
            raise RequestError(f"bad op: {op} is not of the protocol that this runtime speaks (see --proto)")
        return ops

    def _choose(self, proto: Proto) -> DocOps | HeadOps:
        self._table.set_head(proto == "head")
        kind = DocOps if proto == "doc" else HeadOps
        self._ops = kind(self._sequences, self._masks, self._limits)
        return self._ops
