"""`aicirt`: start the processes of the runtime, or do a small job without them.

The order matters. All shared memory is mapped and all pidfds are opened before the first fork. The two service
processes are forked while this process has a single thread. Then the supervisor's thread starts, which replaces service
processes, and the stepper serves the main channel.
"""

import contextlib
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from aici_base import native_choice
from aici_base.errors import AiciError, UsageError
from aici_runtime import flags, jobs, process
from aici_runtime.channels.channel import Channels
from aici_runtime.flags import Settings
from aici_runtime.guests import wasmtime_engine
from aici_runtime.memory import shm
from aici_runtime.memory.mask_region import MaskRegion
from aici_runtime.memory.slot_memory import unmap
from aici_runtime.memory.worker_slots import NUM_WORKER_SLOTS, POOL_EMPTIED_MAX, POOL_GUESTS_MAX, WorkerSlotTable
from aici_runtime.modules.compiler import compile_module
from aici_runtime.modules.registry import Registry
from aici_runtime.protocol.stepper import Stepper
from aici_runtime.recordings.token_texts import TokenTexts
from aici_runtime.recordings.trace import MaskReader, NoTrace, Recorder, Trace
from aici_runtime.supervision import side_process, spawner
from aici_runtime.supervision.images import Images
from aici_runtime.supervision.pool_starts import PoolStarts
from aici_runtime.supervision.service_processes import ServiceProcesses
from aici_runtime.supervision.side_process import SideConfig
from aici_runtime.supervision.snapshots import Snapshots
from aici_runtime.supervision.spawner import SpawnerConfig, SpawnerSockets
from aici_runtime.supervision.templates import Templates
from aici_runtime.supervision.worker_supervisor import WorkerSupervisor
from aici_runtime.tokenizer import vocabulary
from aici_runtime.tokenizer.tokenizer_check import check_tokenizer
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary

_STOP_GRACE_S = 1.0
_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    try:
        if arguments[:1] == ["replay"]:
            from aici_runtime.recordings import replay  # imported late for its weight: a runtime never needs the module

            return replay.main(arguments[1:])
        settings = flags.parse(arguments)
        logging.basicConfig(
            level=_log_level(settings), format="%(levelname)s [%(name)s] %(message)s", stream=sys.stderr
        )
        return _run(settings)
    except AiciError as error:
        hint = f"\n hint: {error.hint}" if error.hint else ""
        sys.stderr.write(f"error: {error.message}{hint}\n")
        return error.exit_code
    except OSError as error:  # such as an unwritable file or missing shared memory
        sys.stderr.write(f"error: {error}\n")
        return AiciError.exit_code


def _run(settings: Settings) -> int:
    native_choice.chosen()  # an unknown word is an error here, and not in each guest
    module_id = ""
    if settings.module is not None:
        module_id = jobs.install(settings, settings.module)
        sys.stdout.write(f"{module_id}\n")
        sys.stdout.flush()
        if not (settings.server or settings.run):
            return 0
    if not (settings.server or settings.run or settings.save_tokenizer):
        raise AiciError(
            "missing --server", hint="--server serves an engine; --help lists the other jobs"
        )  # exit 1, as in upstream AICI
    loaded = vocabulary.load(settings.tokenizer, settings.cache_dir, logits_size=settings.logits_size)
    if settings.save_tokenizer is not None and not settings.run:
        settings.save_tokenizer.write_bytes(loaded.tries[settings.assumed_proto])
        return 0
    check_tokenizer(loaded.tokenizer_json)  # from here on, the library `tokenizers` loads the file
    if settings.run:
        return jobs.run(settings, loaded, module_id)
    return _serve(settings, loaded)


def _log_level(settings: Settings) -> int:
    """Return the level. RUST_LOG is a list of levels and of levels of modules (`info,aicirt=debug`); the first plain
    level counts."""
    levels = {"error": logging.ERROR, "warn": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}
    asked = next((word for word in os.environ.get("RUST_LOG", "").lower().split(",") if word in levels), "warn")
    return min(levels[asked], logging.INFO if settings.verbose else logging.CRITICAL)


def _serve(settings: Settings, loaded: LoadedVocabulary) -> NoReturn:
    engine_pidfd = _open_engine(settings.engine_pid)
    process.raise_descriptors()
    with contextlib.suppress(PermissionError):
        os.setpgid(0, 0)  # a session leader already leads its group
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # undo any mask inherited from the thread that started the process
    process.set_name("aicirt")
    process.adopt_orphans()
    own_pidfd = os.pidfd_open(os.getpid())
    channels = Channels(settings.name, "futex" if settings.futex else "semaphore", settings.json_size_bytes)
    requests, responses = channels.attach("cmd", ""), channels.attach("resp", "")
    side_requests, side_responses = channels.attach("cmd", "-side"), channels.attach("resp", "-side")
    bin_region = shm.attach_region(f"{settings.name}bin-shm", settings.bin_size_bytes)
    masks = MaskRegion(bin_region, dtype=settings.bias_dtype, vocab_size=loaded.vocab_size)
    trace = _trace(settings, loaded, bin_region)
    row_bytes = max(masks.v1_rows.row_bytes, masks.v2_rows.row_bytes)
    table = WorkerSlotTable(settings.instances, mask_bytes=row_bytes)
    table.protocol = settings.assumed_proto
    sockets = SpawnerSockets()
    supervisor = WorkerSupervisor(table, unbound_s=settings.unbound_s)
    registry = Registry(
        settings.store_dir,
        cache_key=wasmtime_engine.cache_key(),
        restricted=settings.restricted,
        modules=settings.modules,
        stored_mib=settings.stored_mib,
        compile=partial(compile_module, timeout_s=settings.limits.compile_s),
    )
    services = ServiceProcesses(_leave)

    def begin(body: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            supervisor.close_descriptors()
            body()

        return run

    def start_spawner() -> None:
        config = SpawnerConfig(
            table=table,
            reports=supervisor.reports,
            masks=masks,
            vocabulary=loaded,
            limits=settings.limits,
            capabilities=settings.capabilities,
            timer_resolution_us=settings.timer_resolution_us,
            worker_user=settings.worker_user,
            store_dir=settings.store_dir,
            # A guest has a watchdog, its request may have a process of variables, and a template keeps a fork.
            max_processes=4 * (min(settings.instances.total, NUM_WORKER_SLOTS) + settings.templates) + 64,
            memory_bytes=settings.limits.memory_bytes,
            max_guests=POOL_GUESTS_MAX + POOL_EMPTIED_MAX,
            stepper_pidfd=own_pidfd,
        )

        def run() -> None:
            for mailbox in (requests, responses, side_requests, side_responses):
                mailbox.close()
            unmap(bin_region)
            spawner.main(config, sockets)

        services.start(spawner.PROCESS_NAME, begin(run), replace=start_spawner)

    def start_side(generation: int = 0, unanswered: Sequence[str | None] = ()) -> None:
        config = SideConfig(
            requests=side_requests,
            responses=side_responses,
            table=table,
            registry=registry,
            spawner=sockets,
            reports=supervisor.reports,
            generation=generation,
            unanswered=unanswered,
            vocab_size=loaded.vocab_size,
            max_init_s=settings.limits.init_s,
            templates=Templates(limit=settings.templates, memory_max_bytes=settings.template_memory_bytes),
            images=Images(limit=settings.templates, memory_max_bytes=settings.template_memory_bytes),
            pools=PoolStarts(modules=settings.pooled, size=settings.pool_size),
            snapshots=Snapshots(registry, loaded),
            stepper_pidfd=own_pidfd,
            stop=lambda: process.kill(own_pidfd, signal.SIGTERM),
            trace=trace,
        )
        with supervisor.starting_side_process() as trust:
            pid = services.start(
                side_process.PROCESS_NAME,
                begin(lambda: side_process.main(config)),
                lambda: start_side(*supervisor.side_process_died()),
            )
            trust(pid)

    supervisor.watch(engine_pidfd, _leave)
    _on_signals(supervisor, {signal.SIGTERM: _leave, signal.SIGCHLD: services.reap})
    # The service processes share the memory of this process until one of them writes; the collector would write.
    gc.collect()
    gc.freeze()
    process.give_back_memory()
    start_spawner()
    start_side()
    supervisor.start()
    stepper = Stepper(
        table=table,
        supervisor=supervisor,
        masks=masks,
        vocabulary=loaded,
        limits=settings.limits,
        proto=settings.proto,
        trace=trace,
    )
    stepper.serve(requests, responses, settings.busy_wait_ms)
    process.kill(own_pidfd, signal.SIGTERM)  # the supervisor's thread then leaves
    while True:
        signal.pause()


def _trace(settings: Settings, loaded: LoadedVocabulary, masks: shm.Region) -> Recorder:
    if settings.trace is None:
        return NoTrace()
    path = Path(str(settings.trace).replace("%p", str(os.getpid())))
    reader = MaskReader(masks, settings.bias_dtype, loaded.vocab_size)
    trace = Trace(path, reader, TokenTexts(loaded.tries["v1"]))
    trace.begin(settings, loaded)
    return trace


def _open_engine(pid: int | None) -> int:
    """Return a pidfd of the engine, whose end ends the runtime."""
    try:
        return os.pidfd_open(os.getppid() if pid is None else pid)
    except ProcessLookupError as error:
        raise UsageError(f"the engine (process {pid}) is gone") from error


def _on_signals(supervisor: WorkerSupervisor, handlers: Mapping[int, Callable[[], None]]) -> None:
    """Run handlers in the supervisor's thread. Python's C handler writes to the pipe even while this thread sleeps."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    for number in handlers:
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def handle() -> None:
        for number in set(os.read(read_end, 4096)) & handlers.keys():
            handlers[number]()

    supervisor.watch(read_end, handle)


def _leave(code: int = 0) -> NoReturn:
    """End every process of the runtime, then this one. A process that does not end at once ends when this one
    is gone."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGUSR1)  # ignored here, fatal elsewhere
    deadline = time.monotonic() + _STOP_GRACE_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.002)
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
