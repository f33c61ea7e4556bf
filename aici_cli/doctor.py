"""`aici doctor`: check this machine, with a hint for every problem."""

import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from aici_cli.output import print_json

Verdict = Literal["ok", "absent", "broken"]
"""`absent`: an optional part is missing. `broken`: aici cannot run models."""


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    verdict: Verdict
    detail: str
    hint: str = ""


def doctor(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Check this machine; exit with 1 if aici cannot run models."""
    findings = [check() for check in CHECKS]
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            print(f"{finding.verdict:<7} {finding.name}: {finding.detail}")
            if finding.hint:
                print(f"        hint: {finding.hint}")
    if any(finding.verdict == "broken" for finding in findings):
        raise typer.Exit(1)


def _platform() -> Finding:
    detail = (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    )
    if sys.platform != "linux":
        return Finding("platform", "broken", detail, "the controller runtime needs Linux: futexes, pidfds, /dev/shm")
    return Finding("platform", "ok", detail)


def _shared_memory() -> Finding:
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError as err:
        return Finding("shared memory", "broken", str(err), "mount a tmpfs on /dev/shm")
    if free < 64 << 20:
        hint = "give the container more shared memory, for example with --shm-size=256m"
        return Finding("shared memory", "broken", f"{free >> 20} MiB free in /dev/shm", hint)
    return Finding("shared memory", "ok", f"{free >> 20} MiB free in /dev/shm")


def _sandbox() -> Finding:
    from aici_runtime.workers import sandbox

    walls = sandbox.survey()
    standing = sandbox.names(wall for wall in walls if not wall.reason)
    absent = "; ".join(f"no {wall.name}: {wall.reason}" for wall in walls if wall.reason)
    return Finding("sandbox", "ok", f"guests are confined by WebAssembly, {standing}", absent)


def _cache() -> Finding:
    from aici_base.cache_files import default_cache_dir

    folder = default_cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
    except OSError as err:
        detail = f"{folder} cannot be written: {err.strerror}"
        return Finding("cache", "broken", detail, "set AICI_CACHE_DIR to another folder")
    return Finding("cache", "ok", f"{folder}, {free >> 30} GiB free")


def _packages() -> Finding:
    return _installed("runtime", ["wasmtime", "posix-ipc", "orjson", "tokenizers"], "broken", "reinstall aici")


def _engine() -> Finding:
    light = _installed("engine", ["numpy", "jinja2"], "broken", "pip install 'aici[kernels]'")
    if light.verdict != "ok":
        return light
    hint = "pip install 'aici[engine]', for other families than those of the kernels, GPUs and GGUF files"
    return _installed("engine", ["torch", "transformers", "gguf", "safetensors"], "absent", hint)


def _kernels() -> Finding:
    from aici_base.errors import UsageError
    from aici_engine.native.library import describe

    try:
        native = describe()
    except UsageError as error:  # AICI_NATIVE names a level that cannot run
        return Finding("native kernels", "broken", error.message, error.hint)
    if native.library is None:
        return Finding(
            "native kernels", "absent", f"{native.why}; torch runs models, several times slower", native.hint
        )
    return Finding("native kernels", "ok", f"for {native.level}")


def _guest_loop() -> Finding:
    from aici_base.errors import UsageError
    from aici_runtime.guests.native.library import describe

    try:
        loop = describe()
    except UsageError as error:  # AICI_NATIVE has an unknown word
        return Finding("loop of guests", "broken", error.message, error.hint)
    if loop.library is None:
        detail = f"{loop.why}; Python serves the guests, with a few times the processor time"
        return Finding("loop of guests", "absent", detail, loop.hint)
    return Finding("loop of guests", "ok", "in C")


def _toolchain() -> Finding:
    return _installed("guest toolchain", ["ziglang"], "absent", "pip install 'aici[build]', to build controllers")


def _installed(name: str, packages: list[str], otherwise: Verdict, hint: str) -> Finding:
    from importlib.metadata import PackageNotFoundError, version

    found, missing = [], []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        return Finding(name, otherwise, f"not installed: {', '.join(missing)}", hint)
    return Finding(name, "ok", ", ".join(found))


def _guests() -> Finding:
    from aici_controllers.catalog import SHIPPED, guest_names
    from aici_controllers.third_party import known_sources

    names = guest_names()
    third_party = {source.guest for source in known_sources().values()}
    missing = [name for name in SHIPPED if name not in names and name not in third_party]
    hint = "reinstall aici, or run `make guests`"
    if "regex" in missing:
        return Finding("controllers", "broken", f"not built: {', '.join(missing)}", hint)
    if missing:
        return Finding("controllers", "absent", f"{', '.join(names)}; not built: {', '.join(missing)}", hint)
    return Finding("controllers", "ok", ", ".join(names))


def _third_party() -> Finding:
    """Guests built from third-party sources, which are not always available during the build."""
    from aici_controllers.catalog import guest_names
    from aici_controllers.third_party import known_sources

    missing = [source for source in known_sources().values() if source.guest not in guest_names()]
    if missing:
        detail = ", ".join(f"{source.guest} is not built (needs {source.name} {source.version})" for source in missing)
        hint = "run `python -m aici_controllers.build` in a checkout to fetch and build the sources"
        return Finding("scripted controllers", "absent", detail, hint)
    built = ", ".join(f"{source.guest} ({source.name} {source.version})" for source in known_sources().values())
    return Finding("scripted controllers", "ok", built)


def _store() -> Finding:
    from aici_base.errors import UnavailableError
    from aici_controllers.store import Store

    store = Store()
    try:
        stored = store.registry.modules()
    except UnavailableError as error:
        return Finding("store", "broken", error.message, error.hint)
    size = sum(module.wasm_size + (module.compiled_size or 0) for module in stored)
    tags = len(store.registry.get_tags())
    return Finding("store", "ok", f"{store.folder}: {len(stored)} controllers, {tags} tags, {size / (1 << 20):.1f} MiB")


def _model() -> Finding:
    from aici_engine.store.resolve import list_models

    names = [path.name for path in list_models()]
    if not names:
        return Finding("models", "absent", "none in the cache", "run `aici models pull` to fetch the default model")
    return Finding("models", "ok", ", ".join(names))


def _accelerator() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("accelerator", "absent", "torch is not installed")
    import torch

    if not torch.cuda.is_available():
        is_there = Path("/proc/driver/nvidia/version").is_file()
        why = f"torch {torch.__version__} cannot use the GPU of this machine" if is_there else "no GPU"
        capability = torch.backends.cpu.get_cpu_capability()
        return Finding("accelerator", "absent", f"{why}; models run on the CPU ({capability})")
    return Finding("accelerator", "ok", torch.cuda.get_device_name())


CHECKS: tuple[Callable[[], Finding], ...] = (
    _platform,
    _shared_memory,
    _sandbox,
    _cache,
    _packages,
    _engine,
    _kernels,
    _guest_loop,
    _toolchain,
    _guests,
    _third_party,
    _store,
    _model,
    _accelerator,
)
