"""The settings of `aicirt`: the values of its command line (`flag_table.py`), validated."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from aici_base.cache_files import default_cache_dir, default_store_dir
from aici_base.errors import AiciError, UsageError
from aici_runtime.channels.channel import MIB
from aici_runtime.flag_table import flag_parser
from aici_runtime.memory.mask_region import DTYPES, Dtype
from aici_runtime.quota import Quota
from aici_runtime.wire import Proto

_MAX_LOG_KIB = 64
_MAX_NAME_BYTES = 200
"""Linux allows 255 bytes for a name in /dev/shm; the runtime appends suffixes."""

_NOT_BEHAVIOUR = (
    *("tokenizer", "server", "name", "futex", "busy_wait_time", "module", "tags", "run", "run_arg", "save_tokenizer"),
    *("cache_dir", "trace", "engine_pid", "unbound_timeout", "worker_user", "verbose", "pooled"),
)

Placement = Literal["process", "pool"]
"""Each guest in its own process, or several guests in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a guest, times in seconds. `pre_step_s`: post and pre together; `step_s`: mid; `init_s`: everything
    before the first step. `timeout_steps`: rounds that a late guest may take. None: the default of the protocol."""

    forks: int
    memory_bytes: int
    pre_step_s: float
    step_s: float | None
    timeout_steps: int | None
    init_s: float
    compile_s: float
    log_bytes: int
    table_elements: int

    def step_limit_s(self, proto: Proto) -> float:
        default = 0.150 if proto == "v1" else 0.025
        return default if self.step_s is None else self.step_s

    def late_rounds(self, proto: Proto) -> int:
        default = 0 if proto == "v1" else 10
        return default if self.timeout_steps is None else self.timeout_steps

    def timeout_text(self, op: str, proto: Proto) -> str:
        """Return the error message for a guest that exceeded the time limit of `op`: mid, pre or post."""
        if op == "mid":
            what, limit_s, flags = "mid_process", self.step_limit_s(proto), "--wasm-max-step-time"
        else:
            what, limit_s, flags = "pre_process and post_process", self.pre_step_s, "--wasm-max-pre-step-time"
        if rounds := self.late_rounds(proto):
            flags = f"in each of {rounds} steps: {flags}, --wasm-max-timeout-steps"
        return f"Worker: timeout; {what} took more than {limit_s * 1000:.0f} ms ({flags})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a runtime. `proto` None: the first operation selects the protocol; until then `assumed_proto`
    holds. `as_given`: the flags that affect the behaviour towards an engine, so a replay can start a runtime alike."""

    tokenizer: str
    logits_size: int | None
    server: bool
    name: str
    proto: Proto | None
    assumed_proto: Proto
    futex: bool
    json_size_bytes: int
    bin_size_bytes: int
    busy_wait_ms: int
    limits: Limits
    timer_resolution_us: int
    bias_dtype: Dtype
    capabilities: frozenset[str]
    pooled: Collection[str] | None
    """The modules whose guests share processes; None: all."""
    pool_size: int
    templates: int
    template_memory_bytes: int
    module: str | None
    tags: tuple[str, ...]
    run: bool
    run_arg: Path | None
    save_tokenizer: Path | None
    restricted: bool
    trace: Path | None
    cache_dir: Path
    store_dir: Path
    engine_pid: int | None
    unbound_s: float
    instances: Quota
    modules: Quota
    stored_mib: Quota
    worker_user: str | None
    verbose: bool
    as_given: tuple[str, ...]


def _capabilities(flags: Namespace) -> frozenset[str]:
    return frozenset(name for name in ("fork", "backtrack", "ff_tokens") if getattr(flags, f"cap_{name}"))


def _from_environment(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value) if value else None


def _as_given(parser: ArgumentParser, flags: Namespace) -> Iterator[str]:
    for name, value in vars(flags).items():
        if name not in _NOT_BEHAVIOUR and value != parser.get_default(name):
            yield f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")


def parse(argv: Sequence[str] | None) -> Settings:
    """Parse and validate. Raise UsageError; argparse itself exits with status 2 on a malformed line."""
    parser = flag_parser(protos=get_args(Proto), placements=get_args(Placement))
    flags = parser.parse_args(argv)
    if not flags.name.startswith("/"):
        raise AiciError("--name must start with /")  # exit status 1, as upstream AICI
    if "/" in flags.name[1:] or len(flags.name.encode()) > _MAX_NAME_BYTES:
        raise UsageError(
            "--name is not a name for shared objects", hint=f"a leading /, no other /, at most {_MAX_NAME_BYTES} bytes"
        )
    if flags.bias_dtype not in (None, *DTYPES):
        raise UsageError(f"--bias-dtype {flags.bias_dtype} is not supported", hint=f"one of: {', '.join(DTYPES)}")
    if flags.gh_module:
        raise UsageError("--gh-module is not supported", hint="download the .wasm file, then give --module FILE.wasm")
    for flag, given in (("--tag", flags.tags), ("--run", flags.run), ("--run-arg", flags.run_arg)):
        if given and not flags.module:
            raise UsageError(f"{flag} needs --module")
    if flags.run and flags.server:
        raise UsageError("--run and --server exclude each other", hint="run the module first, then serve")
    if flags.wasm_max_log > _MAX_LOG_KIB:
        raise UsageError(f"--wasm-max-log is at most {_MAX_LOG_KIB}", hint="the answer to a step has no room for more")
    if flags.bench:
        raise UsageError("--bench is not supported", hint="`aici bench rt` measures the runtime")
    capabilities = _capabilities(flags)
    needs_v2 = bool(flags.bias_dtype or flags.logits_size or capabilities)
    assumed: Proto = flags.proto or ("v2" if needs_v2 else "v1")
    json_size, bin_size = (8, 16) if flags.proto == "v1" else (128, 64)
    return Settings(
        tokenizer=flags.tokenizer,
        logits_size=flags.logits_size,
        server=flags.server,
        name=flags.name,
        proto=flags.proto,
        assumed_proto=assumed,
        futex=flags.futex,
        json_size_bytes=(flags.json_size or json_size) * MIB,
        bin_size_bytes=(flags.bin_size or bin_size) * MIB,
        busy_wait_ms=flags.busy_wait_time,
        limits=Limits(
            forks=flags.wasm_max_forks,
            memory_bytes=flags.wasm_max_memory * MIB,
            pre_step_s=flags.wasm_max_pre_step_time / 1000,
            step_s=None if flags.wasm_max_step_time is None else flags.wasm_max_step_time / 1000,
            timeout_steps=flags.wasm_max_timeout_steps,
            init_s=flags.wasm_max_init_time / 1000,
            compile_s=flags.wasm_max_compile_time / 1000,
            log_bytes=flags.wasm_max_log * 1024,
            table_elements=flags.wasm_max_table,
        ),
        timer_resolution_us=flags.wasm_timer_resolution_us,
        bias_dtype=flags.bias_dtype or "f32",
        capabilities=capabilities,
        pooled=None if flags.placement == "pool" else frozenset(flags.pooled),
        pool_size=flags.pool_size or max(1, (os.cpu_count() or 1) // 2),
        templates=flags.templates,
        template_memory_bytes=flags.template_memory * MIB,
        module=flags.module,
        tags=tuple(flags.tags),
        run=flags.run,
        run_arg=flags.run_arg,
        save_tokenizer=flags.save_tokenizer,
        restricted=flags.restricted,
        trace=flags.trace or _from_environment("AICI_TRACE"),
        cache_dir=flags.cache_dir or default_cache_dir(),
        store_dir=flags.cache_dir / "modules" if flags.cache_dir else default_store_dir(),
        engine_pid=flags.engine_pid,
        unbound_s=flags.unbound_timeout,
        instances=Quota("guests", "--max-instances", flags.max_instances, flags.max_instances_per_user),
        modules=Quota("modules", "--max-modules", flags.max_modules, flags.max_modules_per_user),
        stored_mib=Quota("MB of modules", "--max-stored-mb", flags.max_stored_mb, flags.max_stored_mb_per_user),
        worker_user=flags.worker_user,
        verbose=flags.verbose,
        as_given=tuple(_as_given(parser, flags)),
    )
