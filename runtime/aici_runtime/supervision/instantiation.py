"""`instantiate`: from the engine's request to a guest that waits for the first step. Many at once, in threads."""

import logging
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from aici_base.errors import AiciError, ControllerError, QuotaError, UnavailableError, UsageError
from aici_runtime.channels import socket_frames
from aici_runtime.channels.envelope import ChannelRequest, RequestError, field, uints
from aici_runtime.memory.worker_slots import POOL_OWNER, WorkerSlot, WorkerSlotTable, owner_id
from aici_runtime.modules.registry import Registry
from aici_runtime.supervision.images import ImageKey, Images
from aici_runtime.supervision.pool_starts import Pool, PoolKey, PoolStarts
from aici_runtime.supervision.snapshots import Snapshots
from aici_runtime.supervision.spawner import SpawnerSockets
from aici_runtime.supervision.templates import Template, TemplateKey, Templates
from aici_runtime.workers.startup import NO_SLOT
from aici_runtime.workers.worker_reports import WorkerReports

_log = logging.getLogger(__name__)

_TRIES = 2
"""The first pool may have been killed."""

GRACE_S = 0.2
"""Grace on top of the init limit, for a busy machine."""


class _DiedError(ControllerError):
    """The process ended during the start of a guest."""


class Instantiator:
    """Starts guests from templates or from the spawner. Used by many threads of the side process."""

    def __init__(
        self,
        *,
        table: WorkerSlotTable,
        registry: Registry,
        spawner: SpawnerSockets,
        reports: WorkerReports,
        generation: int,
        vocab_size: int,
        max_init_s: float,
        templates: Templates,
        pools: PoolStarts,
        images: Images,
        snapshots: Snapshots,
    ) -> None:
        self._table = table
        self._registry = registry
        self._spawner = spawner
        self._reports = reports
        self._generation = generation
        self._vocab_size = vocab_size
        self._max_init_s = max_init_s
        limit = f"{max_init_s * 1000:.0f} ms (--wasm-max-init-time)"
        self._timeout_text = f"instantiate: timeout; the controller took more than {limit} to start"
        self._templates = templates
        self._pools = pools
        self._images = images
        self._snapshots = snapshots
        self._slot_lock = threading.Lock()

    def instantiate(self, req_id: str, request: ChannelRequest) -> bytes:
        """Return the SeqResult for the engine, once the guest waits for the first step and the supervisor knows."""
        order = self._order(request)
        slot = self._take_slot(owner_id(request.auth.user))
        try:
            answer = self._bring_up(slot, order)
            # In protocol v2 a failed guest exists all the same and reports the failure at every step.
            if answer["error"] and not (order.request["protocol"] == "v2" and "reply" in answer):
                raise ControllerError(answer["error"])
        except BaseException:
            self._give_up(slot)
            raise
        self._table.forget(slot)
        self._reports.ready(req_id, slot, has_failed=bool(answer["error"]))
        return orjson.dumps(answer["reply"])

    def _take_slot(self, owner: int) -> WorkerSlot:
        """Take a slot, which this process has to report as ready or failed."""
        with self._slot_lock:
            slot = self._table.take(self._table.guest_half, owner)
        try:
            self._reports.taken(slot.index, self._table.descriptor(slot))
        except BaseException:
            self._give_up(slot)
            raise
        return slot

    def _give_up(self, slot: WorkerSlot) -> None:
        """Report a slot as failed. Another thread may take the slot as soon as the supervisor has read the report."""
        self._table.forget(slot)
        self._reports.failed(slot)

    def prepare(self, module_id: str) -> None:
        """Make the snapshot of a new module, so that the first request finds the snapshot."""
        try:
            self._find_snapshot(module_id, self._registry.compiled(module_id))
        except UnavailableError as error:  # such as a full disk, or a compiler that was killed
            _log.warning("module %s is not ready ahead of its first request: %s", module_id, error)
        except AiciError as error:  # the module was removed, or the first request will report the reason
            _log.info("no snapshot of %s: %s", module_id, error)

    def _find_snapshot(self, module_id: str, compiled: Path) -> Path | None:
        return self._snapshots.find(module_id, lambda: self._make_snapshot(compiled))

    def _order(self, request: ChannelRequest) -> "_StartOrder":
        prompt = request.body.get("prompt")
        if not isinstance(prompt, str):
            prompt = uints(request.body, "prompt")
            for token in prompt:
                if token >= self._vocab_size:
                    raise UsageError(f"prompt token out of range: {token}")
        module_id = self._registry.resolve(field(request.body, "module_id", str))
        for kept in (self._templates, self._pools, self._images):
            kept.drop_modules(lambda module_id: not self._registry.has(module_id))
        compiled = self._registry.compiled(module_id)
        snapshot = self._find_snapshot(module_id, compiled)
        module_arg = _module_arg(request.body.get("module_arg"))
        return _StartOrder(
            TemplateKey.of(module_id, module_arg),
            {"compiled": str(compiled), "snapshot": snapshot and str(snapshot)},
            {"module_arg": module_arg},
            {"prompt": prompt, "protocol": self._table.protocol, "seed": _seed(request.body)},
            request.auth.user,
        )

    def _bring_up(self, slot: WorkerSlot, order: "_StartOrder") -> dict[str, Any]:
        key = PoolKey(order.key.module_id, order.user)
        for _ in range(_TRIES if self._pools.take_in(key.module_id) else 0):
            with self._pools.taken(key, lambda: self._start_pool(order)) as pool:
                if pool is None:
                    break
                if (answer := self._join(pool, slot, order)) is not None:
                    return answer
        return self._start_process(slot, order)

    def _join(self, pool: Pool, slot: WorkerSlot, order: "_StartOrder") -> dict[str, Any] | None:
        """Start the guest in a pool. None: the pool is gone, perhaps in the middle. A pool that takes too long gets no
        further guest."""
        key = ImageKey(order.key.module_id, order.user, order.key.arg_hash)
        try:
            with self._images.find(key) as (image, file):
                message = order.argument | order.request | ({} if image is None else {"image": image.about})
                given = file if image is None else image.descriptor
                sock = pool.ask(slot.index, self._generation, self._table.descriptor(slot), given)
                answer = self._wait_up(sock, orjson.dumps(message))
                if file >= 0 and not answer["error"]:
                    if "image" in answer:
                        self._images.keep(key, file, answer["image"])
                    else:
                        self._images.refuse(key)
                return answer
        except OSError:
            pool.end()
            return None
        except ControllerError as error:
            pool.end()
            if isinstance(error, _DiedError):
                return None
            raise

    def _start_pool(self, order: "_StartOrder") -> Pool | None:
        """Start a pool for the module. None: guests start in processes of their own, and will report the reason."""
        try:
            slot = self._take_slot(POOL_OWNER)
        except (QuotaError, OSError):
            return None
        try:
            sock = self._spawn_worker(slot)
            message = orjson.dumps({"pool_of": order.module, "protocol": self._table.protocol})
            if self._wait_up(sock, message, closing=False)["error"]:
                self._pools.refuse(order.key.module_id)
                raise ControllerError("guests of the module cannot share a process")
        except (AiciError, OSError):
            self._give_up(slot)
            return None
        self._table.forget(slot)
        self._reports.pooled(slot)
        return Pool(sock, slot)

    def _start_process(self, slot: WorkerSlot, order: "_StartOrder") -> dict[str, Any]:
        sock = self._fork(slot, order.key, order.guest, order.request)
        if sock is not None:
            return self._wait_up(sock)
        message = b""
        if self._snapshots.reads_ahead(order.key.module_id):
            sock = self._fork(slot, order.key.of_module(), order.module, order.argument | order.request)
        if sock is None:
            sock, message = self._spawn_worker(slot), orjson.dumps(order.guest | order.request)
        try:
            answer = self._wait_up(sock, message)
        except ControllerError:
            self._templates.forget(order.key)
            raise
        if answer["error"]:
            self._templates.forget(order.key)
        elif not answer["may_be_template"]:
            self._templates.refuse(order.key)
            self._templates.refuse(order.key.of_module())
        return answer

    def _fork(
        self, slot: WorkerSlot, key: TemplateKey, guest: dict[str, object], request: dict[str, object]
    ) -> socket.socket | None:
        """Return a socket to a live fork of the template of `key`, with its request. None without a template."""

        def make() -> Template | None:
            template = self._make_template(guest)
            if template is None and key.is_module:
                self._templates.refuse(key)
            return template

        template = self._templates.find(key, make)
        if template is None:
            return None
        sock = self._fork_template(template, slot, orjson.dumps(request))
        if sock is None:
            self._templates.drop(key, template)
        return sock

    def _spawn_worker(self, slot: WorkerSlot) -> socket.socket:
        """Return a socket to a live worker, fresh from the spawner."""
        ours = _spawn(self._spawner, slot.index, self._generation, self._table.descriptor(slot))
        refusal = socket_frames.receive(ours)
        if refusal == b"":
            return ours
        ours.close()
        if refusal is None:
            raise UnavailableError("cannot start a guest process: the process was killed", hint="try again")
        raise UnavailableError(refusal.decode(), hint="end other processes, or raise their limit (ulimit -u)")

    def _fork_template(self, template: Template, slot: WorkerSlot, message: bytes) -> socket.socket | None:
        """Return a socket to a live fork of the template with its order, or None if the slot has no fork and gets none.

        A template slower than the init limit is ended: a guest started afresh may take no longer.
        """
        try:
            ours = _spawn(template, slot.index, self._generation, self._table.descriptor(slot))
        except OSError:
            return None
        alive: bytes | None = None
        try:
            ours.settimeout(self._max_init_s)
            socket_frames.send(ours, message)
            alive = socket_frames.receive(ours)
        except TimeoutError:
            template.end()
            ours.settimeout(None)
            alive = socket_frames.receive(ours)  # from a fork made after all, or the end of the stream
        except BrokenPipeError:
            pass
        if alive is None:
            ours.close()
            return None
        return ours

    def _spawn_template(self) -> tuple[socket.socket, Template] | None:
        """Return a live process without a slot, and the socket to it. None: the guest started instead will report the
        reason."""
        sock = _spawn(self._spawner, NO_SLOT, self._generation)
        _, fds, _, _ = socket.recv_fds(sock, len(socket_frames.EMPTY), 1)
        if not fds:
            sock.close()
            return None
        return sock, Template(sock, fds[0])

    def _make_snapshot(self, compiled: Path) -> int | None:
        """Return a descriptor of a snapshot, made by a process that ends afterwards; None if there can be none."""
        spawned = self._spawn_template()
        if spawned is None:
            return None
        sock, worker = spawned
        try:
            sock.settimeout(self._max_init_s)
            socket_frames.send(sock, orjson.dumps({"snapshot_of": str(compiled)}))
            fds = socket.recv_fds(sock, len(socket_frames.EMPTY), 1)[1]
        except OSError:  # a timeout too
            return None
        finally:
            worker.end()
        return fds[0] if fds else None

    def _make_template(self, guest: dict[str, object]) -> Template | None:
        spawned = self._spawn_template()
        if spawned is None:
            return None
        sock, template = spawned
        try:
            template.memory_bytes = self._wait_up(sock, orjson.dumps(guest), closing=False)["memory_bytes"]
        except (ControllerError, KeyError):
            template.end()
            return None
        return template

    def _wait_up(self, sock: socket.socket, message: bytes = b"", *, closing: bool = True) -> dict[str, Any]:
        """Send a worker its order (unless sent before) and wait until the guest has come up."""
        try:
            sock.settimeout(self._max_init_s + GRACE_S)
            if message:
                socket_frames.send(sock, message)
            answer = socket_frames.receive(sock)
            sock.settimeout(None)
        except TimeoutError as error:
            raise ControllerError(self._timeout_text) from error
        except BrokenPipeError:
            answer = None
        finally:
            if closing:
                sock.close()
        if answer is None:
            raise _DiedError("Worker: died during setup")
        read: dict[str, Any] = orjson.loads(answer)
        return read


@dataclass(frozen=True, slots=True)
class _StartOrder:
    """The fields shared by all guests of the module, the argument, and the fields of a single guest."""

    key: TemplateKey
    module: dict[str, object]
    argument: dict[str, object]
    request: dict[str, object]
    user: str

    @property
    def guest(self) -> dict[str, object]:
        """The fields shared by all guests of the key."""
        return self.module | self.argument


class _Spawns(Protocol):
    def spawn(self, slot: int, generation: int, setup: socket.socket, memory: int = -1) -> None: ...


def _spawn(source: _Spawns, slot: int, generation: int, memory: int = -1) -> socket.socket:
    """Ask for a process. Return the socket on which the process reports."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            source.spawn(slot, generation, theirs, memory)
        except BaseException:
            ours.close()
            raise
    return ours


def _seed(body: Mapping[str, object]) -> int:
    seed = body.get("seed", 0)
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise RequestError("field seed is not an integer from 0 to 2^64 - 1")
    return seed


def _module_arg(value: object) -> str:
    try:
        return value if isinstance(value, str) else orjson.dumps(value).decode()
    except TypeError as error:
        raise UsageError(f"module_arg is nested too deeply: {error}") from error
