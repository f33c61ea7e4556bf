"""Kill a process at every file-system operation in turn, and check the registry left behind.

`python -m tests.runtime.support.killed FOLDER` prints the number of kills. With `torn`, a file about to be opened for
writing at the moment of the kill is left with three bytes.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from aici_runtime.modules.registry import Registry
from tests.runtime.support.registries import ADMIN, fake_compile, leftovers, open_registry, seen, wasm

_OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir", "fcntl.flock"}
_WRITING = os.O_WRONLY | os.O_RDWR

(KEPT_ID, KEPT), (A_ID, A), (B_ID, B), (C_ID, C) = (wasm(name) for name in ("kept", "a", "b", "c"))
Program = Sequence[Callable[[Registry], object]]
PROGRAM: Program = [
    lambda registry: registry.sweep(),
    lambda registry: registry.add(A, ADMIN),
    lambda registry: registry.set_tags(A_ID, ["one", "two"], ADMIN),
    lambda registry: registry.add(B, ADMIN),
    lambda registry: registry.set_tags(B_ID, ["two", "three"], ADMIN),
    lambda registry: registry.remove_tag("three", ADMIN),
    lambda registry: registry.compiled(KEPT_ID),
    lambda registry: registry.remove(A_ID, ADMIN, force=True),
    lambda registry: registry.remove(B_ID, ADMIN, force=True),
]
BOTH, ALL = frozenset({KEPT_ID, A_ID}), frozenset({KEPT_ID, A_ID, B_ID})
STATES: Sequence[list[tuple[frozenset[str], dict[str, str]]]] = [
    [(frozenset({KEPT_ID}), {})],
    [(frozenset({KEPT_ID}), {})],
    [(BOTH, {})],
    [(BOTH, {"one": A_ID, "two": A_ID})],
    [(ALL, {"one": A_ID, "two": A_ID})],
    [(ALL, {"one": A_ID, "two": B_ID, "three": B_ID})],
    [(ALL, {"one": A_ID, "two": B_ID})],
    [(ALL, {"one": A_ID, "two": B_ID})],
    # When a module is removed, the tags go first.
    [(frozenset({KEPT_ID, B_ID}), {"two": B_ID}), (ALL, {"two": B_ID})],
    [(frozenset({KEPT_ID}), {}), (frozenset({KEPT_ID, B_ID}), {})],
]
"""By the number of complete steps, without the tag `kept`: the finished state, then the other allowed states."""


def prepare(folder: Path) -> None:
    registry = open_registry(folder)
    registry.add(KEPT, ADMIN)
    registry.set_tags(KEPT_ID, ["kept"], ADMIN)
    for code in folder.glob("*.cwasm"):
        code.unlink()  # as after an update of wasmtime
    (folder / ".new-dead").mkdir()
    (folder / ".new-dead" / "wasm").write_bytes(b"half")


def run_until(folder: Path, fatal: int, torn: bool, done: int) -> None:
    """Run the program in a child. A byte on `done` reports a complete step."""
    count = 0
    dying = False

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count, dying
        if dying or event not in _OPERATIONS:
            return
        is_write = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & _WRITING)
        if torn and not is_write:
            return
        count += 1
        if count == fatal:
            dying = True
            if torn:
                Path(str(arguments[0])).write_bytes(b"\0as")
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    registry = Registry(folder, cache_key="key", compile=fake_compile)
    for step in PROGRAM:
        step(registry)
        os.write(done, b".")


def check(folder: Path, num_done: int) -> None:
    """Visible is the state before or after the interrupted step, and the next process finds the same state."""
    modules, tags = seen(folder)
    assert tags.pop("kept") == KEPT_ID
    allowed = [STATES[num_done][0], *STATES[min(num_done + 1, len(PROGRAM))]]
    assert (modules, tags) in allowed, (num_done, modules, tags)
    registry = open_registry(folder)
    registry.sweep()
    assert leftovers(folder) == []
    again = seen(folder)
    assert (again[0], {name: value for name, value in again[1].items() if name != "kept"}) == (modules, tags)
    registry.add(C, ADMIN)
    registry.add(A, ADMIN)
    registry.set_tags(C_ID, ["one"], ADMIN)
    assert seen(folder)[1]["one"] == C_ID
    assert leftovers(folder) == []


def main(parent: Path) -> None:
    for torn in (False, True):
        fatal = 0
        status = -1
        while status != 0:
            fatal += 1
            folder = parent / f"{torn}{fatal}"
            prepare(folder)
            reader, writer = os.pipe()
            if (pid := os.fork()) == 0:
                run_until(folder, fatal, torn, writer)
                os._exit(0)
            os.close(writer)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            num_done = len(os.read(reader, 100))
            os.close(reader)
            assert status in (0, -signal.SIGKILL), status
            check(folder, num_done)
            shutil.rmtree(folder)
        print(f"{'torn' if torn else 'killed'} {fatal - 1}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
