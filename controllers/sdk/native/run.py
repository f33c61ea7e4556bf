"""Build the SDK natively and run its fuzz targets: `python controllers/sdk/native/run.py check | fuzz TARGET`.

check   any C++20 compiler: run the seeds and a fixed set of mutations under AddressSanitizer and UBSan
fuzz    clang 16 or newer with its runtime (Debian: clang-19 libclang-rt-19-dev): libFuzzer with the same sanitizers
tool    any C++20 compiler: build the tool of a guest as a fast program and print its path. The program reads a question
        a line and writes an answer a line; tests.support.native_tool asks it

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
    sources = [*_sdk_sources(UNUSED.get(target, ())), NATIVE / "vocabulary.cpp", NATIVE / "fuzz" / f"{target}.cpp"]
    program = BUILD / f"{target}-{'fuzz' if fuzzing else 'check'}"
    if fuzzing:
        flags = [*FLAGS, *SANITIZE, "-fsanitize=fuzzer-no-link"]
        return _link(compiler(fuzzing=True), flags, sources, program, ["-fsanitize=fuzzer"])
    return _link(compiler(fuzzing=False), [*FLAGS, *SANITIZE], [*sources, NATIVE / "replay.cpp"], program)


def build_tool(guest: str) -> Path:
    """Build the tool of a guest (`aici/tool.hpp`) as a program without sanitizers."""
    folder = SDK.parent / "guests" / guest
    if not list(folder.glob("*.cpp")):
        raise NotFoundError(f"no guest in C++ is called {guest!r}", hint=f"look into {folder.parent}")
    sources = [*_sdk_sources(("script",)), NATIVE / "tool.cpp", *sorted(folder.glob("*.cpp"))]
    return _link(compiler(fuzzing=False), [*FLAGS, "-O2"], sources, BUILD / f"{guest}-tool")


def _sdk_sources(unused: Sequence[str]) -> list[Path]:
    """Return the sources of the SDK without `unused` folders, and the host."""
    sources = sorted((SDK / "src").rglob("*.cpp"))
    used = [path for path in sources if path.name not in GUEST_ONLY and path.parent.name not in unused]
    return [*used, NATIVE / "host.cpp"]


def _link(cxx: str, flags: list[str], sources: list[Path], program: Path, link: Sequence[str] = ()) -> Path:
    BUILD.mkdir(exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda source: _compile(cxx, flags, source), sources))
    partial = program.with_suffix(f".{os.getpid()}")
    _run([cxx, *flags, *link, *map(str, objects), "-o", str(partial)])
    return partial.rename(program)


def _compile(cxx: str, flags: Sequence[str], source: Path) -> Path:
    """Return the object of `source`, compiled unless the files that the source includes are unchanged."""
    name = hashlib.sha256(" ".join([cxx, *flags, str(source)]).encode()).hexdigest()[:16]
    includes = BUILD / f"{source.stem}-{name}.d"
    if includes.exists() and (known := _object(includes)).exists():
        return known
    partial = BUILD / f"{source.stem}-{name}.{os.getpid()}.o"
    command = [cxx, *flags, f"-I{source.parent}", "-c", str(source), "-o", str(partial)]
    _run([*command, "-MMD", "-MF", str(partial.with_suffix(".d"))])
    partial.with_suffix(".d").rename(includes)
    return partial.rename(_object(includes))


def _object(includes: Path) -> Path:
    """Return the name of an object: a digest of the files named in `includes`, as a compiler writes these for make."""
    digest = hashlib.sha256()
    for word in includes.read_text().partition(":")[2].replace("\\\n", " ").split():
        path = Path(word)
        digest.update(path.read_bytes() if path.exists() else b"gone")
    return includes.with_name(f"{includes.stem}-{digest.hexdigest()[:16]}.o")


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
    commands.add_parser("tool").add_argument("guest", help="for example json_schema")
    args = parser.parse_args(arguments)
    try:
        if args.command == "check":
            check(args.targets or targets(), args.changes)
        elif args.command == "tool":
            sys.stdout.write(f"{build_tool(args.guest)}\n")
        else:
            fuzz(args.target, args.seconds)
    except AiciError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f" hint: {error.hint}\n" if error.hint else ""))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
