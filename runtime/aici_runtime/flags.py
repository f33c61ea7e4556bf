"""The command line of `aicirt`: the original's flags, and what became of their defaults.

--busy-wait-time is 0 here (200 there): spinning helps only with a free core for each spinner, so a positive value is
honoured on machines with 8 cores or more. --cache-dir is new: the original used `./cache`.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aici_runtime.cache import default_cache_dir, default_store_dir
from aici_runtime.channel import MIB
from aici_runtime.errors import UsageError
from aici_runtime.masks import DTYPES, Dtype

_MAX_NAME_BYTES = 200
"""Linux has 255 for a name in /dev/shm, and ours get endings."""


_MAX = 1 << 20
"""Of any flag: a terabyte, or a quarter of an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times in seconds. `pre_step`: post and pre together; `step`: mid; `init`: everything before the first step."""

    forks: int
    memory_bytes: int
    pre_step_s: float
    step_s: float
    init_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    tokenizer: str
    server: bool
    name: str
    json_size_bytes: int
    bin_size_bytes: int
    busy_wait_ms: int
    limits: Limits
    bias_dtype: Dtype
    module: str | None
    tags: tuple[str, ...]
    save_tokenizer: Path | None
    restricted: bool
    cache_dir: Path
    store_dir: Path
    engine_pid: int | None
    verbose: bool


def parse(argv: Sequence[str] | None) -> Settings:
    """Raises UsageError; argparse itself exits with 2 on a malformed line."""
    flags = _parser().parse_args(argv)
    if flags.futex:
        raise UsageError("--futex is not yet supported", hint="leave it out: named semaphores are the default")
    if not flags.name.startswith("/"):
        raise UsageError("--name must start with /")
    if "/" in flags.name[1:] or len(flags.name.encode()) > _MAX_NAME_BYTES:
        raise UsageError(
            "--name is not that of a shared object", hint=f"a /, no other /, and at most {_MAX_NAME_BYTES} bytes"
        )
    if flags.bias_dtype not in DTYPES:
        raise UsageError(f"--bias-dtype {flags.bias_dtype} is not supported", hint=f"one of: {', '.join(DTYPES)}")
    if flags.tags and not flags.module:
        raise UsageError("--tag needs --module")
    return Settings(
        tokenizer=flags.tokenizer,
        server=flags.server,
        name=flags.name,
        json_size_bytes=flags.json_size * MIB,
        bin_size_bytes=flags.bin_size * MIB,
        busy_wait_ms=flags.busy_wait_time,
        limits=Limits(
            forks=flags.wasm_max_forks,
            memory_bytes=flags.wasm_max_memory * MIB,
            pre_step_s=flags.wasm_max_pre_step_time / 1000,
            step_s=flags.wasm_max_step_time / 1000,
            init_s=flags.wasm_max_init_time / 1000,
        ),
        bias_dtype=flags.bias_dtype,
        module=flags.module,
        tags=tuple(flags.tags),
        save_tokenizer=flags.save_tokenizer,
        restricted=flags.restricted,
        cache_dir=flags.cache_dir or default_cache_dir(),
        store_dir=flags.cache_dir / "modules" if flags.cache_dir else default_store_dir(),
        engine_pid=flags.engine_pid,
        verbose=flags.verbose,
    )


def _positive(text: str) -> int:
    value = int(text)
    if not 1 <= value <= _MAX:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to {_MAX}")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aicirt", description="The AICI controller runtime.", allow_abbrev=False)
    add = parser.add_argument
    add("-t", "--tokenizer", metavar="PATH", required=True, help="folder of a model, or its tokenizer.json")
    add("-s", "--server", action="store_true", help="serve an engine over shared memory")
    add("-n", "--name", metavar="PREFIX", default="/aici0-", help="of the shared objects (default: %(default)s)")
    add("--json-size", metavar="MB", type=_positive, default=8, help="of a channel (default: %(default)s)")
    add("--bin-size", metavar="MB", type=_positive, default=16, help="of the masks (default: %(default)s)")
    add("--bias-dtype", metavar="TYPE", default="f32", help="f32, or bool: a bit per token (default: %(default)s)")
    add(
        "--busy-wait-time",
        metavar="MS",
        type=int,
        default=0,
        help="spin first, on 8 cores or more (default: 0)",
    )
    add("--futex", action="store_true", help="not yet supported")
    add(
        "--wasm-max-forks",
        metavar="N",
        type=_positive,
        default=16,
        help="guests per request (default: %(default)s)",
    )
    add("--wasm-max-memory", metavar="MB", type=_positive, default=64, help="linear memory (default: %(default)s)")
    add("--wasm-max-pre-step-time", metavar="MS", type=_positive, default=4, help="post and pre (default: %(default)s)")
    add("--wasm-max-step-time", metavar="MS", type=_positive, default=150, help="mid (default: %(default)s)")
    add("--wasm-max-init-time", metavar="MS", type=_positive, default=1000, help="instantiate (default: %(default)s)")
    add("-m", "--module", metavar="FILE.wasm", help="install a controller, print its id, and exit unless --server")
    add("--tag", metavar="TAG", dest="tags", action="append", default=[], help="tag the module; may be repeated")
    add("--save-tokenizer", metavar="FILE", type=Path, help="write the serialized token trie, and exit")
    add("--restricted", action="store_true", help="refuse uploads and tags")
    add("--cache-dir", metavar="DIR", type=Path, help="modules, tags, tries (default: where `aici` keeps its models)")
    add("--verbose", action="store_true", help="log what happens, not only warnings, to standard error")
    add("--engine-pid", metavar="PID", type=int, help="end when that process ends (default: the parent)")
    return parser
