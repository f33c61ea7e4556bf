"""The jobs of `aicirt` besides serving: install, tag and run a controller."""

import sys
import threading
from pathlib import Path

from aici_base.errors import ControllerError, UsageError
from aici_runtime.abi import Blob
from aici_runtime.channels.envelope import Auth
from aici_runtime.flags import Settings
from aici_runtime.guests import wasmtime_engine
from aici_runtime.guests.guest import Guest, GuestError, GuestTimeoutError, load_module
from aici_runtime.guests.guest_state import GuestState
from aici_runtime.guests.host_functions import HostFunctions
from aici_runtime.guests.linker import Linker, returns_offset
from aici_runtime.guests.variables import Variables
from aici_runtime.modules.registry import Registry
from aici_runtime.tokenizer import host_tokenizer
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary

_RUN_S = 120.0
_DEFAULT_ARGUMENT = b'{"steps":[]}'
_EXITED = "proc_exit: "


def install(settings: Settings, module: str) -> str:
    """`--module` and `--tag`: install and tag a controller as administrator of this machine. Return the module id."""
    auth = Auth("local", is_admin=True)
    registry = _registry(settings)
    if module.endswith(".wasm"):
        path = Path(module)
        if not path.is_file():
            raise UsageError(f"no such file: {path}")
        module_id = registry.add(path.read_bytes(), auth).module_id
    else:
        module_id = registry.resolve(module)
        registry.compiled(module_id)
    if settings.tags:
        registry.set_tags(module_id, settings.tags, auth)
    return module_id


def run(settings: Settings, loaded: LoadedVocabulary, module_id: str) -> int:
    """`--run`: call `aici_main` or `main` of the module, print its log to standard output, and return the exit status.

    Raise ControllerError if the controller fails or runs too long.
    """
    engine = wasmtime_engine.new_engine()
    host = HostFunctions(
        loaded,
        host_tokenizer.load(loaded.tokenizer_json, loaded.tries["v2"]),
        capabilities=settings.capabilities,
        timer_resolution_us=settings.timer_resolution_us,
    )
    state = host.guest = _Printing()
    state.storage = Variables()
    state.blobs[Blob.MODULE_ARG] = settings.run_arg.read_bytes() if settings.run_arg else _DEFAULT_ARGUMENT
    module = load_module(engine, _registry(settings).compiled(module_id))
    linker = Linker(engine, host.on_failure)
    host.define(linker, returns_offset=returns_offset(module))
    try:
        guest = Guest(
            engine=engine, linker=linker.wasmtime, module=module, memory_max_bytes=settings.limits.memory_bytes
        )
        state.memory, state.trie = guest.memory, loaded.tries[guest.abi]
        return _call(guest)
    except GuestTimeoutError as error:
        raise ControllerError(f"the controller ran for more than {_RUN_S:.0f} s") from error
    except GuestError as error:
        said = state.stop_message or ""
        if said.startswith(_EXITED):
            return int(said.removeprefix(_EXITED)) & 0xFF
        raise ControllerError(said or str(error).rstrip()) from error


def _call(guest: Guest) -> int:
    watchdog = threading.Timer(_RUN_S, guest.interrupt)
    watchdog.start()
    try:
        if guest.exports("_initialize"):
            guest.call("_initialize")
        guest.call("aici_init")
        if guest.find("aici_main", "i", ""):
            guest.call("aici_main", guest.call("aici_create"))
            return 0
        if guest.find("main", "ii", "i"):
            return guest.call("main") & 0xFF
    finally:
        watchdog.cancel()
    raise ControllerError(
        "the controller exports neither aici_main nor main", hint="omit --run to install the controller only"
    )


class _Printing(GuestState):
    def log(self, text: bytes) -> None:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


def _registry(settings: Settings) -> Registry:
    return Registry(settings.store_dir, cache_key=wasmtime_engine.cache_key())
