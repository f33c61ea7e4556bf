"""The side process: work ahead of the first step, such as uploads and `instantiate`. Each request has a thread."""

import base64
import itertools
import logging
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import NoReturn

import orjson

from aici_base.errors import AiciError, UnavailableError
from aici_runtime import process
from aici_runtime.channels import envelope
from aici_runtime.channels.channel import Mailbox, MessageTooLargeError
from aici_runtime.channels.envelope import ChannelRequest, RequestError, field
from aici_runtime.memory.worker_slots import WorkerSlotTable
from aici_runtime.modules.registry import Registry
from aici_runtime.modules.tags import is_module_id
from aici_runtime.modules.upload import read_upload
from aici_runtime.recordings.trace import Recorder
from aici_runtime.supervision.images import Images
from aici_runtime.supervision.instantiation import Instantiator
from aici_runtime.supervision.pool_starts import PoolStarts
from aici_runtime.supervision.snapshots import Snapshots
from aici_runtime.supervision.spawner import SpawnerSockets
from aici_runtime.supervision.templates import Templates
from aici_runtime.workers.worker_reports import WorkerReports

PROCESS_NAME = "aicirt-side"
_NUM_THREADS = 16
_NUM_PREPARED = 16
_MAX_REQ_ID_CHARS = 1000
_DIED_TEXT = "the process that served this request was killed"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideConfig:
    """`unanswered`: the `rid` of every request left by a dead predecessor. `stop` ends the runtime."""

    requests: Mailbox
    responses: Mailbox
    table: WorkerSlotTable
    registry: Registry
    spawner: SpawnerSockets
    reports: WorkerReports
    generation: int
    unanswered: Sequence[str | None]
    vocab_size: int
    max_init_s: float
    templates: Templates
    pools: PoolStarts
    images: Images
    snapshots: Snapshots
    stepper_pidfd: int
    stop: Callable[[], None]
    trace: Recorder


def main(config: SideConfig) -> NoReturn:
    """Run the side process in a fresh fork."""
    process.set_name(PROCESS_NAME)
    process.die_with(config.stepper_pidfd)
    # An ignored SIGCHLD would be inherited from the engine. Then a failed compilation has no exit status and looks like
    # success.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    config.spawner.wait_ready()  # before the first ping is answered: an engine may rely on readiness
    if config.generation > 0:
        config.requests.repair("reading")
        config.responses.repair("writing")
    pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="side")
    side = _Side(config, pool)
    for rid in config.unanswered:
        side.respond(
            envelope.failure(rid, _DIED_TEXT, is_user_error=False, code=UnavailableError.code, hint="try again")
        )
    pool.submit(_sweep, config.registry)
    pool.submit(side.prepare_tagged)
    while True:
        config.requests.receive(accept=side.accept)


def _sweep(registry: Registry) -> None:
    try:
        registry.sweep()
    except UnavailableError as error:  # a read-only folder is fine
        _log.info("nothing is swept: %s", error)


class _Side:
    def __init__(self, config: SideConfig, pool: Executor) -> None:
        self._config = config
        self._pool = pool
        self._background = ThreadPoolExecutor(1, thread_name_prefix="prepare")
        self._compiling = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="compile")
        """Starts of guests whose modules are not compiled yet: no other request waits behind them."""
        self._responses_lock = threading.Lock()
        self._instantiator = Instantiator(
            table=config.table,
            registry=config.registry,
            spawner=config.spawner,
            reports=config.reports,
            generation=config.generation,
            vocab_size=config.vocab_size,
            max_init_s=config.max_init_s,
            templates=config.templates,
            pools=config.pools,
            images=config.images,
            snapshots=config.snapshots,
        )
        self._numbers = itertools.count()
        self._in_flight_lock = threading.Lock()
        self._in_flight: dict[str, bool] = {}  # req_id → discarded in the meantime
        self._ops: dict[str, Callable[[ChannelRequest], bytes]] = {
            "ping": lambda _: b'{"pong":1}',
            "instantiate": self._instantiate,
            "discard": _discarded,
            "mk_module": self._mk_module,
            "set_tags": self._set_tags,
            "get_tags": self._get_tags,
        }

    def prepare_tagged(self) -> None:
        """Make the missing snapshots of the modules tagged last, if they are compiled: the first requests find them."""
        for info in self._config.registry.get_tags()[:_NUM_PREPARED]:
            if self._config.registry.is_compiled(info.module_id):
                self._instantiator.prepare(info.module_id)

    def accept(self, message: bytes) -> None:
        """Take a request in the order of arrival. Work that depends on the order happens here; the pool does
        the rest."""
        try:
            request = envelope.parse(message)
        except envelope.BadMessageError as error:
            response = envelope.json_error(str(error))
            self._config.trace.record("-side", message, response)
            self._pool.submit(self.respond, response)
            return
        if request.op == "stop":
            self._config.trace.record("-side", message, None)
            self._config.stop()
            return
        number = next(self._numbers)
        req_id = request.body.get("req_id") if request.op in ("instantiate", "discard") else None
        refusal = self._register(request.op, req_id) if isinstance(req_id, str) else ""
        is_birth = request.op == "instantiate" and isinstance(req_id, str) and not refusal
        self._config.reports.begin(number, request.rid, req_id if is_birth else None)
        pool = self._compiling if self._waits_for_compiler(request) else self._pool
        pool.submit(self._serve, number, message, request, refusal)

    def _waits_for_compiler(self, request: ChannelRequest) -> bool:
        module_id = request.body.get("module_id")
        if request.op != "instantiate" or not isinstance(module_id, str) or not is_module_id(module_id):
            return False
        with suppress(AiciError):  # the request will report the reason
            return not self._config.registry.is_compiled(module_id)
        return False

    def _register(self, op: str, req_id: str) -> str:
        """Return the reason of a refusal; empty when the request is fine."""
        if len(req_id) > _MAX_REQ_ID_CHARS:  # a report has to fit into a datagram
            return "req_id too long"
        if op == "discard":
            self._discard(req_id)
        elif not self._begin(req_id):
            return f"duplicate req_id {req_id}"
        return ""

    def _begin(self, req_id: str) -> bool:
        with self._in_flight_lock:
            if req_id in self._in_flight:
                return False
            self._in_flight[req_id] = False
            return True

    def _end(self, req_id: str) -> None:
        with self._in_flight_lock:
            discarded = self._in_flight.pop(req_id)
        if discarded:
            self._config.reports.discard(req_id)

    def _discard(self, req_id: str) -> None:
        with self._in_flight_lock:
            if req_id in self._in_flight:
                self._in_flight[req_id] = True
                return
        self._config.reports.discard(req_id)

    def _serve(self, number: int, message: bytes, request: ChannelRequest, refusal: str) -> None:
        request = self._config.trace.before(request, self._config.registry)
        response = envelope.failure(request.rid, refusal, is_user_error=False) if refusal else self._run(request)
        self._config.trace.record("-side", message, response, request.body)
        self.respond(response)
        self._config.reports.end(number)

    def _run(self, request: ChannelRequest) -> bytes:
        try:
            response = envelope.answer(request, self._ops.get(request.op, _bad_op))
            self._config.responses.check_fits(response)
        except MessageTooLargeError as error:
            return envelope.failure(request.rid, str(error), is_user_error=False)
        except Exception as error:  # noqa: BLE001  a bug; the engine must get its answer all the same
            _log.exception("side request failed")
            return envelope.failure(request.rid, f"internal error: {error!r}", is_user_error=False)
        return response

    def respond(self, response: bytes) -> None:
        with self._responses_lock:
            self._config.responses.send(response)

    def _mk_module(self, request: ChannelRequest) -> bytes:
        compile_later = "compile_later" in request.body and field(request.body, "compile_later", bool)
        if compile_later and not request.auth.is_admin:
            raise RequestError("field compile_later is for admins")
        info = self._config.registry.add(_module_of(request), request.auth, compile_later=compile_later)
        self._background.submit(self._instantiator.prepare, info.module_id)
        return orjson.dumps(
            {
                "module_id": info.module_id,
                "wasm_size": info.wasm_size,
                "compiled_size": info.compiled_size,
                "time": info.time_ms,
            }
        )

    def _set_tags(self, request: ChannelRequest) -> bytes:
        tags = field(request.body, "tags", list)
        if not all(isinstance(tag, str) for tag in tags):
            raise RequestError("field tags is not a list of strings")
        infos = self._config.registry.set_tags(field(request.body, "module_id", str), tags, request.auth)
        return orjson.dumps({"tags": [asdict(info) for info in infos]})

    def _get_tags(self, _: ChannelRequest) -> bytes:
        return orjson.dumps({"tags": [asdict(info) for info in self._config.registry.get_tags()]})

    def _instantiate(self, request: ChannelRequest) -> bytes:
        req_id = field(request.body, "req_id", str)  # registered by `accept`
        try:
            return self._instantiator.instantiate(req_id, request)
        finally:
            self._end(req_id)


def _module_of(request: ChannelRequest) -> bytes:
    """Return the module of an upload: `binary` in base64, or `path`, a file that an admin names."""
    if "path" in request.body and "binary" not in request.body:
        if not request.auth.is_admin:
            raise RequestError("field path is for admins: send the module as binary")
        return read_upload(field(request.body, "path", str))
    try:
        return base64.b64decode(field(request.body, "binary", str), validate=True)
    except ValueError as error:  # binascii.Error, or not ASCII
        raise RequestError(f"field binary is not base64: {error}") from error


def _bad_op(_: ChannelRequest) -> bytes:
    raise RequestError("bad op")


def _discarded(request: ChannelRequest) -> bytes:
    """Acknowledge a discard; `accept` has done the work."""
    field(request.body, "req_id", str)
    return b"{}"
