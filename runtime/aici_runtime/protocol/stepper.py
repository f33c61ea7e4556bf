"""The stepper: serves the main channel, in step with the engine, in one thread. Nothing slow happens here."""

import logging
from collections.abc import Callable

import orjson

from aici_runtime import turn_message
from aici_runtime.channels import envelope
from aici_runtime.channels.channel import Mailbox, MessageTooLargeError
from aici_runtime.channels.envelope import ChannelRequest, RequestError
from aici_runtime.flags import Limits
from aici_runtime.memory.mask_region import MaskRegion
from aici_runtime.memory.worker_slots import WorkerSlotTable
from aici_runtime.protocol.guest_forks import GuestForks
from aici_runtime.protocol.guest_sequences import GuestSequences
from aici_runtime.protocol.v1_ops import V1Ops
from aici_runtime.protocol.v2_ops import V2Ops
from aici_runtime.recordings.trace import NoTrace, Recorder
from aici_runtime.supervision.pools import GuestPools
from aici_runtime.supervision.worker_supervisor import WorkerSupervisor
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary
from aici_runtime.wire import Proto

_log = logging.getLogger(__name__)


class Stepper:
    """Dispatches the commands of the main channel. The first command on sequences selects protocol v1 or v2."""

    def __init__(
        self,
        *,
        table: WorkerSlotTable,
        supervisor: WorkerSupervisor,
        masks: MaskRegion,
        vocabulary: LoadedVocabulary,
        limits: Limits,
        proto: Proto | None = None,
        trace: Recorder,
    ) -> None:
        self._trace = trace
        self._table = table
        self._masks = masks
        self._vocabulary = vocabulary
        self._limits = limits
        pools = GuestPools(table=table, supervisor=supervisor)
        self._sequences = GuestSequences(table=table, supervisor=supervisor, pools=pools, limits=limits)
        self._forks = GuestForks(self._sequences, table=table, supervisor=supervisor, pools=pools, limits=limits)
        self._ops: V1Ops | V2Ops | None = None
        if proto is not None:
            self._choose(proto)

    def serve(self, requests: Mailbox, responses: Mailbox, busy_wait_ms: int) -> None:
        """Answer requests until `stop`, which has no response."""
        may_use_c = isinstance(self._trace, NoTrace) and not busy_wait_ms
        while True:
            if may_use_c and isinstance(self._ops, V1Ops):
                may_use_c = self._ops.serve_calm(requests, responses)
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
        """Return the response to a message; None for `stop`."""
        if turn_message.is_turn(message):
            return self._respond(None, lambda: self._v1_ops("turn_process").turn_message(message))
        try:
            request = envelope.parse(message)
        except envelope.BadMessageError as error:
            return envelope.json_error(str(error))
        if request.op == "stop":
            return None
        return self._respond(request.rid, lambda: envelope.ok(request, self._run(request)))

    def _respond(self, rid: str | None, respond: Callable[[], bytes]) -> bytes:
        try:
            return envelope.guarded(rid, respond)
        except Exception as error:  # noqa: BLE001  a bug; the engine must get its answer all the same
            _log.exception("request failed")
            return envelope.failure(rid, f"internal error: {error!r}", is_user_error=False)

    def _run(self, request: ChannelRequest) -> bytes:
        if request.op == "mid_process":
            ops = self._ops or self._choose("v2" if "freed" in request.body else "v1")
            return ops.mid(request.body)
        if request.op == "post_pre_process":
            return self._v1_ops(request.op).post_pre(request.body)
        if request.op == "turn_process":
            return self._v1_ops(request.op).turn(request.body)
        if request.op == "tokens":
            return orjson.dumps({"vocab_size": self._vocabulary.vocab_size, "eos_token_id": self._vocabulary.eos_token})
        if request.op == "ping":
            return b'{"pong":1}'
        raise RequestError("bad op")

    def _v1_ops(self, op: str) -> V1Ops:
        ops = self._ops or self._choose("v1")
        if isinstance(ops, V2Ops):
            raise RequestError(f"bad op: {op} is not of the protocol that this runtime speaks (see --proto)")
        return ops

    def _choose(self, proto: Proto) -> V1Ops | V2Ops:
        self._table.protocol = proto
        kind = V1Ops if proto == "v1" else V2Ops
        self._ops = kind(self._sequences, self._forks, self._masks, self._limits)
        return self._ops
