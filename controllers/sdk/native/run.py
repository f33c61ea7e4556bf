"""Build the SDK natively and run its fuzz targets: `python controllers/sdk/native/run.py check | fuzz TARGET`.

check   any C++20 compiler: run the seeds and a fixed set of mutations under AddressSanitizer and UBSan
fuzz    clang 16 or newer with its runtime (Debian: clang-19 libclang-rt-19-dev): libFuzzer with the same sanitizers

A target is fuzz/NAME.cpp, with seeds in corpus/NAME/ and an optional dictionary fuzz/NAME.dict. libFuzzer's corpus
stays in .build/; an input that breaks something is saved as .build/NAME-crash-*.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aici_base.errors import AiciError, NotFoundError, UnavailableError

NATIVE = Path(__file__).resolve().parent
SDK = NATIVE.parent
BUILD = NATIVE / ".build"
GUEST_ONLY = {"host.cpp", "runtime.cpp", "variables.cpp", "vocabulary.cpp"}
"""Sources that pass addresses to a 32-bit runtime, or that replace the allocation of the C library."""
UNUSED = {
    **dict.fromkeys(("choices", "exprs", "regex", "substring"), ("grammar", "schema", "script")),
    **dict.fromkeys(("grammar", "grammar_walk"), ("script",)),
    "schema": ("grammar", "script"),
}
"""Folders of sources not needed by a target: compiling under sanitizers takes long, and scripts need a runtime."""

FLAGS = ("-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", f"-I{SDK / 'include'}", f"-I{NATIVE}", f"-I{SDK}")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
_CLANGS = ("clang++", *(f"clang++-{version}" for version in range(30, 15, -1)))


def targets() -> list[str]:
    return sorted(path.stem for path in (NATIVE / "fuzz").glob("*.cpp"))


def seeds(target: str) -> list[Path]:
    return sorted((NATIVE / "corpus" / target).iterdir())


def compiler(*, fuzzing: bool) -> str:
    """Return `$CXX` or an installed compiler. Raise UnavailableError with what to install."""
    if own := os.environ.get("CXX"):
        return own
    names = _CLANGS if fuzzing else ("g++", *_CLANGS, "c++")
    for name in names:
        if shutil.which(name) and (not fuzzing or _major(name) >= 16):
            return name
    if fuzzing:
        raise UnavailableError(
            "fuzzing needs clang 16 or newer", hint="Debian: apt-get install clang-19 libclang-rt-19-dev"
        )
    raise UnavailableError("no native C++ compiler is here", hint="install g++ or clang, or name one in CXX")


def _major(clang: str) -> int:
    done = subprocess.run([clang, "-dumpversion"], capture_output=True, text=True, check=False)
    return int(done.stdout.split(".")[0] or 0) if done.returncode == 0 else 0


def build(target: str, *, fuzzing: bool) -> Path:
    """Build the program of `target`; objects with unchanged source, headers and flags are reused."""
    if target not in targets():
        raise NotFoundError(f"no fuzz target is called {target!r}", hint=f"targets: {', '.join(targets())}")
    cxx = compiler(fuzzing=fuzzing)
    flags = [*FLAGS, *SANITIZE, *(["-fsanitize=fuzzer-no-link"] if fuzzing else [])]
    unused = UNUSED.get(target, ())
    sources = [
        path
        for path in sorted((SDK / "src").rglob("*.cpp"))
        if path.name not in GUEST_ONLY and path.parent.name not in unused
    ]
    sources += [*sorted(NATIVE.glob("*.cpp")), NATIVE / "fuzz" / f"{target}.cpp"]
    if fuzzing:
        sources.remove(NATIVE / "replay.cpp")
    headers = hashlib.sha256(" ".join([cxx, *flags]).encode())
    for path in sorted([*SDK.rglob("*.hpp"), *SDK.rglob("*.h")]):
        headers.update(path.read_bytes())
    BUILD.mkdir(exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda source: _compile(cxx, flags, source, headers.copy()), sources))
    program = BUILD / f"{target}-{'fuzz' if fuzzing else 'check'}"
    link = ["-fsanitize=fuzzer"] if fuzzing else []
    _run([cxx, *flags, *link, *map(str, objects), "-o", str(program)])
    return program


def _compile(cxx: str, flags: Sequence[str], source: Path, digest: "hashlib._Hash") -> Path:
    digest.update(source.read_bytes())
    out = BUILD / f"{source.stem}-{digest.hexdigest()[:16]}.o"
    if not out.exists():
        partial = out.with_suffix(f".{os.getpid()}.o")
        _run([cxx, *flags, f"-I{source.parent}", "-c", str(source), "-o", str(partial)])
        partial.rename(out)
    return out


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AiciError(f"{' '.join(command[-3:])} failed\n{(done.stderr or done.stdout)[-4000:]}")


def check(names: Sequence[str], num_changes: int) -> None:
    for target in names:
        program = build(target, fuzzing=False)
        sys.stdout.write(f"{target}: ")
        sys.stdout.flush()
        done = subprocess.run([str(program), str(num_changes), *map(str, seeds(target))], check=False)
        if done.returncode:
            raise AiciError(f"the target {target} failed", hint="the lines above say where")


def fuzz(target: str, seconds: int) -> None:
    program = build(target, fuzzing=True)
    found = BUILD / f"{target}-corpus"
    found.mkdir(exist_ok=True)
    dictionary = NATIVE / "fuzz" / f"{target}.dict"
    options = [
        f"-max_total_time={seconds}",
        "-timeout=20",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
        "-max_len=2000",
    ]
    options += [f"-dict={dictionary}"] if dictionary.exists() else []
    options += [f"-artifact_prefix={BUILD / target}-"]
    done = subprocess.run([str(program), *options, str(found), str(NATIVE / "corpus" / target)], check=False)
    if done.returncode:
        raise AiciError(f"the target {target} failed", hint=f"the input that breaks it is {BUILD / target}-*")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check")
    checking.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(targets())}; default: all")
    checking.add_argument("--changes", type=int, default=2000, help="inputs made from the seeds, a target")
    fuzzing = commands.add_parser("fuzz")
    fuzzing.add_argument("target", help=f"one of {', '.join(targets())}")
    fuzzing.add_argument("--seconds", type=int, default=60)
    args = parser.parse_args(arguments)
    try:
        if args.command == "check":
            check(args.targets or targets(), args.changes)
        else:
            fuzz(args.target, args.seconds)
    except AiciError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f" hint: {error.hint}\n" if error.hint else ""))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
