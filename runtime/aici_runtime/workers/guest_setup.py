"""The work before the first step: load the module, create the guest, pass the prompt."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson
import wasmtime

from aici_runtime.abi import NO_TEMPLATE_EXPORT, Blob
from aici_runtime.channels.mailbox import MIB
from aici_runtime.flags import Limits
from aici_runtime.guests import snapshot
from aici_runtime.guests.driver import DriverContext, GuestDriver, SetupError, encode_result
from aici_runtime.guests.driver_v1 import DriverV1
from aici_runtime.guests.driver_v2 import DriverV2
from aici_runtime.guests.guest import Guest, GuestError, Memory, load_module
from aici_runtime.guests.guest_state import GuestState
from aici_runtime.guests.host_functions import HostFunctions
from aici_runtime.guests.linker import Linker, returns_offset
from aici_runtime.guests.native.host import NativeHost
from aici_runtime.memory.mask_region import MaskRegion
from aici_runtime.memory.worker_slots import WorkerSlotTable
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary
from aici_runtime.workers.emptied_guests import EmptiedGuests
from aici_runtime.workers.sandbox import Sandbox
from aici_runtime.workers.worker_reports import WorkerReports


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """Prepared once by the spawner, inherited by every worker."""

    engine: wasmtime.Engine
    linker: Linker
    offset_linker: Linker
    """For modules that import `aici_host_return_logit_bias` with a result."""
    host_functions: HostFunctions
    native: NativeHost | None
    """The loop in C; None without the library."""
    capabilities: frozenset[str]
    table: WorkerSlotTable
    reports: WorkerReports
    masks: MaskRegion
    vocabulary: LoadedVocabulary
    limits: Limits
    stepper_pidfd: int
    sandbox: Sandbox

    def new_lock(self) -> AbstractContextManager[object]:
        """Return the lock between a process's guests and its watchdog, open."""
        return threading.Lock() if self.native is None else self.native.new_lock()


class Start(Protocol):
    """How a guest gets its request. `asked_ns`: arrival of the request (time.perf_counter_ns)."""

    asked_ns: int

    @property
    def is_template(self) -> bool: ...

    def request(self, memory: Memory) -> dict[str, Any]:
        """Return the fields that differ between requests."""


def load(context: WorkerContext, order: Mapping[str, Any]) -> tuple[wasmtime.Module, int | None]:
    """Return the module and a descriptor of its snapshot, None without one. Raises SetupError."""
    compiled = Path(order["compiled"])
    try:
        module = load_module(context.engine, compiled)
    except wasmtime.WasmtimeError as error:
        reason = error if compiled.is_file() else "the controller was removed while it was started"
        raise SetupError(f"Error (setup): {reason}") from error
    return module, _open(order.get("snapshot"))


def start_guest(
    context: WorkerContext,
    module: wasmtime.Module,
    snapshot_file: int | None,
    order: Mapping[str, Any],
    startup: Start,
    emptied: EmptiedGuests | None = None,
) -> tuple[Guest, GuestDriver]:
    """Instantiate the module, for the state in `context.host_functions`. Raises SetupError if that is not possible.

    `emptied`: instances of the module; one that fits the snapshot takes the place of a new one.
    """
    state = context.host_functions.guest
    try:
        guest = _start(context, module, snapshot_file, emptied)
    except (GuestError, wasmtime.WasmtimeError) as error:
        raise SetupError(f"Error (setup): {error}{_flag_of(str(error), context.limits)}") from error
    state.memory = guest.memory
    if "module_arg" in order:
        state.blobs[Blob.MODULE_ARG] = order["module_arg"].encode()
    else:  # a template for all arguments: the guest is forked when it reads the argument
        state.find_late(Blob.MODULE_ARG, lambda: startup.request(guest.memory)["module_arg"].encode())
    state.identify = lambda: (startup.request(guest.memory)["seed"], startup.asked_ns)
    state.trie = context.vocabulary.tries[guest.abi]
    return guest, make_driver(context, guest, state)


def _open(path: str | None) -> int | None:
    """Return a descriptor of a file for reading; None without a file."""
    try:
        return None if path is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _start(
    context: WorkerContext, module: wasmtime.Module, snapshot_file: int | None, emptied: EmptiedGuests | None
) -> Guest:
    """Instantiate the module, from a snapshot if there is one that can be used. Raises GuestError."""
    if snapshot_file is None:
        return make_guest(context, module)
    used = None if emptied is None else emptied.take()
    if used is not None and _takes(used, snapshot_file):
        return used
    guest = make_guest(context, module)
    return guest if _takes(guest, snapshot_file) else make_guest(context, module)


def _takes(guest: Guest, snapshot_file: int) -> bool:
    """Give a guest the state of a snapshot. If the file is of no use, close the guest and return False."""
    try:
        snapshot.start_from(guest, snapshot_file)
    except snapshot.NoSnapshotError:
        guest.close()
        return False
    return True


def make_snapshot(context: WorkerContext, compiled: Path) -> int | None:
    """Return a descriptor of a file in memory with a snapshot; None if the module has none."""
    descriptor = os.memfd_create("aici-snapshot", os.MFD_CLOEXEC)
    try:
        snapshot.make(
            context.engine,
            load_module(context.engine, compiled),
            context.vocabulary,
            descriptor,
            memory_max_bytes=context.limits.memory_bytes,
            max_table_elements=context.limits.table_elements,
            before_guest=context.sandbox.seal,
        )
    except (snapshot.NoSnapshotError, wasmtime.WasmtimeError):
        return None
    return descriptor


def make_guest(context: WorkerContext, module: wasmtime.Module) -> Guest:
    """Instantiate the module. Raises GuestError."""
    linker = context.offset_linker if returns_offset(module) else context.linker
    return Guest(
        engine=context.engine,
        linker=linker.wasmtime,
        module=module,
        memory_max_bytes=context.limits.memory_bytes,
        max_table_elements=context.limits.table_elements,
    )


def make_driver(context: WorkerContext, guest: Guest, state: GuestState) -> GuestDriver:
    """Return the driver for the guest's ABI."""
    kind = DriverV1 if guest.abi == "v1" else DriverV2
    return kind(
        guest=guest,
        host=context.host_functions,
        state=state,
        context=DriverContext(
            masks=context.masks,
            vocab_size=context.vocabulary.vocab_size,
            eos_token=context.vocabulary.eos_token,
            max_forks=context.limits.forks,
            capabilities=context.capabilities,
            timeout_text=lambda op: context.limits.timeout_text(op, context.table.protocol),
        ),
    )


def _flag_of(reason: str, limits: Limits) -> str:
    """Name the flag to change when wasmtime reports an exceeded limit."""
    if reason.endswith("exceeds memory limits"):
        return f" (--wasm-max-memory: {limits.memory_bytes // MIB} MB)"
    return f" (--wasm-max-table: {limits.table_elements})" if reason.endswith("exceeds table limits") else ""


def bring_up(
    context: WorkerContext,
    guest: Guest,
    driver: GuestDriver,
    startup: Start,
    *,
    is_created: bool = False,
    on_created: Callable[[], None] | None = None,
) -> dict[str, object]:
    """Run the guest up to its first step. Return the message for the side process; `reply` is for the engine.

    `is_created`: the guest has read its argument, and the driver has the handle. `on_created`: called at that point.

    An engine of protocol v1 reads the log at the first step; a failure is reported at once, as there will be no step.
    In protocol v2 a failed guest exists and reports the failure at every step.
    """
    may_be_template = not guest.has_export(NO_TEMPLATE_EXPORT)
    if startup.is_template and not may_be_template:
        return {"error": f"the controller exports {NO_TEMPLATE_EXPORT}"}
    has_late_argument = context.host_functions.guest.blobs[Blob.MODULE_ARG] is None
    error, prompt = "", None
    try:
        if not is_created:
            driver.create(read_vocabulary=has_late_argument)
        if on_created is not None:
            on_created()
        prompt = driver.init_prompt(lambda: _prompt(context.host_functions, startup.request(guest.memory)["prompt"]))
    except SetupError as failure:
        error = str(failure)
    if startup.is_template:
        return {"error": error}  # the failure happened in the template itself
    result = None if error else {"prompt": prompt, "suspend": False, "num_forks": 1, "ff_tokens": []}
    state, is_v2 = context.host_functions.guest, startup.request(guest.memory)["protocol"] == "v2"
    logs = state.take_log() if is_v2 else ""
    reply = encode_result(
        result=result,
        error=error,
        storage=state.take_written() if is_v2 else [],
        logs=f"{logs}\n{error}" if error else logs,
        micros=(time.perf_counter_ns() - startup.asked_ns) // 1000,
    )
    return {
        "error": error,
        "reply": orjson.Fragment(reply),
        "may_be_template": may_be_template,
    }


def _prompt(host_functions: HostFunctions, prompt: Sequence[int] | str) -> Sequence[int]:
    """Return the tokens of a prompt. Protocol v1 and v2 define a text prompt as a prompt for Llama."""
    return prompt if not isinstance(prompt, str) else host_functions.tokens_of(f"<s> {prompt}" if prompt else "<s>")
