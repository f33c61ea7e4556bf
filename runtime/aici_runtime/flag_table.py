"""The flags of `aicirt`: names, units and defaults of upstream AICI first, then our own.

If a default depends on the protocol, the parser leaves None. --busy-wait-time is 0 here, 200 ms upstream: spinning
helps only if every spinner has a free core, so a positive value takes effect on machines with 8 cores or more.
--cache-dir is ours: upstream uses `./cache`. --wasm-max-compile-time is 10 s, as upstream, where machines had more
cores.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

_MAX = 1 << 20
"""The maximum of any number: a terabyte in MB, or a quarter of an hour in ms."""

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
    _add_ours(parser.add_argument_group("not in upstream AICI"), placements)
    return parser


def _add_wire(group: "argparse._ArgumentGroup", protos: Sequence[str]) -> None:
    add = group.add_argument
    add("-t", "--tokenizer", metavar="NAME", default="llama", help="a folder, a tokenizer.json, a .gguf, a repository "
        "user/model[@revision], or a built-in name (default: %(default)s)")  # fmt: skip
    add("--logits-size", metavar="N", type=_positive, help="pad the vocabulary to N tokens (at most 200 added)")
    add("-s", "--server", action="store_true", help="serve an engine over shared memory")
    add(
        "-n",
        "--name",
        metavar="PREFIX",
        default="/aici0-",
        help="prefix of shared objects' names (default: %(default)s)",
    )
    add("--proto", type=_proto, choices=protos,
        help="v1: pre, mid, post; v2: mid alone (default: chosen by the first message)")  # fmt: skip
    add("--futex", action="store_true", help="synchronize by futexes instead of named semaphores")
    add("--json-size", metavar="MB", type=_positive, help="size of a channel (default: 128; with --proto v1: 8)")
    add("--bin-size", metavar="MB", type=_positive, help="size of the mask region (default: 64; with --proto v1: 16)")
    add("--bias-dtype", metavar="TYPE", help="type of masks: f32, f16, bf16, or bool, one bit a token (default: f32)")
    add("--cap-fork", action="store_true", help="the engine can fork (protocol v2)")
    add("--cap-backtrack", action="store_true", help="the engine can backtrack (protocol v2)")
    add("--cap-ff-tokens", action="store_true", help="the engine can append forced tokens (protocol v2)")
    add(
        "--busy-wait-time",
        metavar="MS",
        type=_count,
        default=0,
        help="spin before sleeping, on 8 cores or more (default: 0)",
    )


def _add_limits(group: "argparse._ArgumentGroup") -> None:
    def add(flag: str, unit: str, default: int, what: str) -> None:
        group.add_argument(flag, metavar=unit, type=_positive, default=default, help=f"{what} (default: {default})")

    add("--wasm-max-forks", "N", 16, "guests of a request")
    add("--wasm-max-memory", "MB", 64, "linear memory")
    add("--wasm-max-pre-step-time", "MS", 4, "time of post and pre together")
    group.add_argument(
        "--wasm-max-step-time", metavar="MS", type=_positive, help="time of mid (default: 25; with --proto v1: 150)"
    )  # fmt: skip
    group.add_argument(
        "--wasm-max-timeout-steps", metavar="N", type=_count,
        help="steps that a late guest may miss before the runtime kills the guest (default: 10; with --proto v1: 0)",
    )  # fmt: skip
    add("--wasm-max-init-time", "MS", 1000, "time of instantiate: everything before the first step")
    group.add_argument(
        "--wasm-timer-resolution-us", metavar="US", type=_count, default=0,
        help="resolution of the guest's clock; 0: the clock stands still (default: 0)",
    )  # fmt: skip
    add("--wasm-max-log", "KB", 64, "log text between two steps")
    add("--wasm-max-table", "N", 100_000, "elements of a table")
    add("--wasm-max-compile-time", "MS", 10_000, "time to compile a module")
    add("--unbound-timeout", "S", 600, "how long a started guest may wait for its sequence")
    for flag, most, of_user, what in (
        ("--max-instances", 512, 512, "guests at once, forks included"),
        ("--max-modules", 10_000, 2_000, "modules in the store"),
        ("--max-stored-mb", 50_000, 10_000, "MB in the store, compiled code included"),
    ):
        add(flag, "N", most, what)
        add(f"{flag}-per-user", "N", of_user, f"{what}, per user")


def _add_jobs(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("-m", "--module", metavar="FILE.wasm|ID", help="install a controller, print its id, and exit unless --server")
    add("--gh-module", metavar="gh:...", help="not supported: nothing is downloaded")
    add("--tag", metavar="TAG", dest="tags", action="append", default=[], help="tag the module; may be repeated")
    add("-r", "--run", action="store_true", help="call aici_main, or main, of the module")
    add("--run-arg", metavar="FILE", type=Path, help='argument of the module for --run (default: {"steps":[]})')
    add("--save-tokenizer", metavar="FILE", type=Path, help="write the serialized token trie, and exit")
    add("--restricted", action="store_true", help="refuse uploads and tags")
    add("--bench", action="store_true", help="see `aici bench rt`")


def _add_ours(group: "argparse._ArgumentGroup", placements: Sequence[str]) -> None:
    add = group.add_argument
    add("--cache-dir", metavar="DIR", type=Path, help="modules, tags, tries (default: where `aici` keeps its models)")
    add("--trace", metavar="FILE.jsonl", type=Path, help="record both channels (%%p in the name: the process id)")
    add(
        "--templates",
        metavar="N",
        type=_count,
        default=16,
        help="started guests kept to be forked (default: %(default)s)",
    )
    add(
        "--template-memory",
        metavar="MB",
        type=_positive,
        default=256,
        help="memory of all templates (default: %(default)s)",
    )
    add(
        "--placement",
        choices=placements,
        default="process",
        help="process: one process per guest; pool: one for the guests of a module and a user (default: %(default)s)",
    )
    add("--pooled", metavar="ID", action="append", default=[],
        help="as --placement pool for the module ID alone; may be repeated")  # fmt: skip
    add("--pool-size", metavar="N", type=_positive,
        help="pools of a module and a user, unless they are full (default: one for two cores)")  # fmt: skip
    add("--worker-user", metavar="USER", help="user that guests run as (needs root; default: the user of the runtime)")
    add("--verbose", action="store_true", help="log to standard error every event, not only warnings")
    add("--engine-pid", metavar="PID", type=int, help="end when process PID ends (default: the parent process)")


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
