"""The flags of `aicirt`: names, units and defaults of the original, and ours after them.

Where the two protocols differ in a default, the parser leaves None. --busy-wait-time is 0 here (200 there): spinning
helps only with a free core for each spinner, so a positive value is honoured on machines with 8 cores or more.
--cache-dir is new: the original used `./cache`. --wasm-max-compile-time was 10 s there, on machines with more cores.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

_MAX = 1 << 20
"""Of any number: a terabyte, or a quarter of an hour."""

_EPILOG = """\
Environment: RUST_LOG=error|warn|info|debug sets what is logged, to standard error (--verbose: info); AICI_CACHE_DIR and
AICI_STORE_DIR are folders; AICI_TRACE stands for --trace where an engine starts the runtime; HF_HOME, HF_HUB_CACHE and
HF_HUB_OFFLINE are those of Hugging Face.
`aici rt replay FILE` plays a recording of --trace and reports the first difference."""


def flag_parser(*, protos: Sequence[str], placements: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aicirt", description="The AICI controller runtime.", epilog=_EPILOG, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    _add_wire(parser.add_argument_group("serving an engine"), protos)
    _add_limits(parser.add_argument_group("limits of a guest"))
    _add_jobs(parser.add_argument_group("other jobs, done before serving or instead of it"))
    _add_ours(parser.add_argument_group("not in the original"), placements)
    return parser


def _add_wire(group: "argparse._ArgumentGroup", protos: Sequence[str]) -> None:
    add = group.add_argument
    add("-t", "--tokenizer", metavar="NAME", default="llama", help="a folder, a tokenizer.json, a .gguf, a repository "
        "user/model[@revision], or a built-in name (default: %(default)s)")  # fmt: skip
    add("--logits-size", metavar="N", type=_positive, help="pad the vocabulary to that size (by 200 at most)")
    add("-s", "--server", action="store_true", help="serve an engine over shared memory")
    add("-n", "--name", metavar="PREFIX", default="/aici0-", help="of the shared objects (default: %(default)s)")
    add("--proto", type=_proto, choices=protos,
        help="v1: pre, mid, post; v2: mid alone (default: as the first message is)")  # fmt: skip
    add("--futex", action="store_true", help="futexes instead of named semaphores")
    add("--json-size", metavar="MB", type=_positive, help="of a channel (default: 128; --proto v1: 8)")
    add("--bin-size", metavar="MB", type=_positive, help="of the masks (default: 64; --proto v1: 16)")
    add("--bias-dtype", metavar="TYPE", help="of the masks: f32, f16, bf16, or bool, a bit per token (default: f32)")
    add("--cap-fork", action="store_true", help="the engine can fork (--proto v2)")
    add("--cap-backtrack", action="store_true", help="the engine can take tokens back (--proto v2)")
    add("--cap-ff-tokens", action="store_true", help="the engine can append tokens unsampled (--proto v2)")
    add("--busy-wait-time", metavar="MS", type=_count, default=0, help="spin first, on 8 cores or more (default: 0)")


def _add_limits(group: "argparse._ArgumentGroup") -> None:
    def add(flag: str, unit: str, default: int, what: str) -> None:
        group.add_argument(flag, metavar=unit, type=_positive, default=default, help=f"{what} (default: {default})")

    add("--wasm-max-forks", "N", 16, "guests of a request")
    add("--wasm-max-memory", "MB", 64, "linear memory")
    add("--wasm-max-pre-step-time", "MS", 4, "post and pre")
    group.add_argument(
        "--wasm-max-step-time", metavar="MS", type=_positive, help="mid (default: 25; --proto v1: 150)"
    )  # fmt: skip
    group.add_argument(
        "--wasm-max-timeout-steps", metavar="N", type=_count,
        help="steps in which a late guest does nothing, before it is killed (default: 10; --proto v1: 0)",
    )  # fmt: skip
    add("--wasm-max-init-time", "MS", 1000, "instantiate")
    group.add_argument(
        "--wasm-timer-resolution-us", metavar="US", type=_count, default=0,
        help="of the guest's clock; 0: it stands still (default: 0)",
    )  # fmt: skip
    add("--wasm-max-log", "KB", 64, "log between two steps")
    add("--wasm-max-table", "N", 100_000, "elements of a table")
    add("--wasm-max-compile-time", "MS", 10_000, "compiling a module")
    add("--unbound-timeout", "S", 600, "how long a guest that has come up waits to be bound")
    for flag, most, of_user, what in (
        ("--max-instances", 512, 512, "guests at once, forks included"),
        ("--max-modules", 10_000, 2_000, "modules in the store"),
        ("--max-stored-mb", 50_000, 10_000, "MB in the store, compiled code included"),
    ):
        add(flag, "N", most, what)
        add(f"{flag}-per-user", "N", of_user, f"{what}, of a user")


def _add_jobs(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("-m", "--module", metavar="FILE.wasm|ID", help="install a controller, print its id, and exit unless --server")
    add("--gh-module", metavar="gh:...", help="not supported: nothing is downloaded")
    add("--tag", metavar="TAG", dest="tags", action="append", default=[], help="tag the module; may be repeated")
    add("-r", "--run", action="store_true", help="call aici_main, or main, of the module")
    add("--run-arg", metavar="FILE", type=Path, help='the argument of the module that runs (default: {"steps":[]})')
    add("--save-tokenizer", metavar="FILE", type=Path, help="write the serialized token trie, and exit")
    add("--restricted", action="store_true", help="refuse uploads and tags")
    add("--bench", action="store_true", help="see `aici bench rt`")


def _add_ours(group: "argparse._ArgumentGroup", placements: Sequence[str]) -> None:
    add = group.add_argument
    add("--cache-dir", metavar="DIR", type=Path, help="modules, tags, tries (default: where `aici` keeps its models)")
    add("--trace", metavar="FILE.jsonl", type=Path, help="record both channels (%%p in the name: the process id)")
    add("--templates", metavar="N", type=_count, default=16, help="guests kept to be forked (default: %(default)s)")
    add("--template-memory", metavar="MB", type=_positive, default=256, help="of these guests (default: %(default)s)")
    add("--placement", choices=placements, default="process", help="a guest a process, or a pool of processes")
    add("--pool-size", metavar="N", type=_positive, help="processes of the pool (default: one a core)")
    add("--worker-user", metavar="USER", help="whom guests run as (needs root; default: whoever starts the runtime)")
    add("--verbose", action="store_true", help="log what happens, not only warnings, to standard error")
    add("--engine-pid", metavar="PID", type=int, help="end when that process ends (default: the parent)")


def _proto(text: str) -> str:
    """Return v1 or v2. `doc` and `head` are other names of these protocols and stay accepted."""
    return {"doc": "v1", "head": "v2"}.get(text, text)


def _positive(text: str) -> int:
    return _number(text, 1)


def _count(text: str) -> int:
    return _number(text, 0)


def _number(text: str, least: int) -> int:
    value = int(text)
    if not least <= value <= _MAX:
        raise argparse.ArgumentTypeError(f"{text} is not from {least} to {_MAX}")
    return value
