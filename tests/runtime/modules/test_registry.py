"""The registry alone: rights, consistency, many processes at once, and death at any moment."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from aici_base.errors import (
    AiciError,
    ControllerError,
    ForbiddenError,
    InUseError,
    NotFoundError,
    QuotaError,
    UnavailableError,
    UsageError,
)
from aici_runtime.channels.envelope import Auth
from aici_runtime.client import Runtime
from aici_runtime.guests.wasmtime_engine import cache_key
from aici_runtime.modules.module_files import ModuleFiles
from aici_runtime.modules.registry import Registry
from aici_runtime.modules.room import StorageLimits
from aici_runtime.quota import Quota
from tests.runtime.support import wat
from tests.runtime.support.registries import ADMIN, KEY, fake_compile, leftovers, open_registry, seen, wasm

ANN, BOB = Auth("ann"), Auth("bob")
(ONE_ID, ONE), (TWO_ID, TWO) = wasm("one"), wasm("two")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return open_registry(tmp_path / "modules")


def test_nothing_is_made_before_something_is_stored(registry: Registry, tmp_path: Path) -> None:
    registry.sweep()
    assert registry.modules() == registry.get_tags() == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_stored_is_listed_with_whose_it_is(registry: Registry) -> None:
    info = registry.add(ONE, ANN)
    assert (info.module_id, info.wasm_size, info.compiled_size) == (ONE_ID, len(ONE), len(ONE) + 8)
    assert registry.add(ONE, BOB).module_id == ONE_ID
    registry.set_tags(ONE_ID, ["ann.x", "ann.b"], ANN)
    [module] = registry.modules()
    assert (module.created_by, module.tags, module.compiled_size) == ("ann", ("ann.b", "ann.x"), len(ONE) + 8)
    assert module.created is not None
    assert registry.read(registry.resolve("ann.x")) == ONE


def test_a_module_may_be_compiled_later(registry: Registry) -> None:
    assert registry.add(ONE, ANN, compile_later=True).compiled_size == 0
    assert registry.add(ONE, BOB, compile_later=True).compiled_size == 0
    assert (registry.read(ONE_ID), registry.is_compiled(ONE_ID)) == (ONE, False)
    assert registry.compiled(ONE_ID).read_bytes() == b"code of " + ONE
    assert registry.add(ONE, ANN, compile_later=True).compiled_size == len(ONE) + 8


@pytest.mark.parametrize("damaged", [b"", b"x" * len(ONE)], ids=["empty", "other bytes"])
@pytest.mark.parametrize("later", [False, True])
def test_what_is_damaged_is_stored_again(registry: Registry, tmp_path: Path, damaged: bytes, later: bool) -> None:
    registry.add(ONE, ANN)
    (wasm,) = (tmp_path / "modules").glob("*.wasm")
    (code,) = (tmp_path / "modules").glob("*.cwasm")
    wasm.write_bytes(damaged)
    code.write_bytes(b"")
    with pytest.raises(UnavailableError, match="is damaged"):
        registry.compiled(ONE_ID)
    registry.add(ONE, BOB, compile_later=later)
    assert registry.read(ONE_ID) == ONE
    assert registry.compiled(ONE_ID).read_bytes() == b"code of " + ONE


def test_good_code_of_a_damaged_module_stays(registry: Registry, tmp_path: Path) -> None:
    registry.add(ONE, ANN)
    (wasm,) = (tmp_path / "modules").glob("*.wasm")
    wasm.write_bytes(b"")
    assert registry.add(ONE, ANN, compile_later=True).compiled_size == len(ONE) + 8


def test_an_upload_compiles_what_should_be_compiled_later(registry: Registry) -> None:
    registry.add(ONE, ANN, compile_later=True)
    assert registry.add(ONE, BOB).compiled_size == len(ONE) + 8


def test_code_for_another_machine_does_not_count(registry: Registry, tmp_path: Path) -> None:
    registry.add(ONE, ANN)
    other = Registry(tmp_path / "modules", cache_key="other", compile=fake_compile)
    assert other.modules()[0].compiled_size is None
    assert other.compiled(ONE_ID).read_bytes() == b"code of " + ONE
    assert other.modules()[0].compiled_size == len(ONE) + 8
    other.remove(ONE_ID, ANN)
    assert [path.name for path in (tmp_path / "modules").iterdir()] == [".lock"]


class TestVisibility:
    def test_of_a_module_that_is_not_shared(self, registry: Registry) -> None:
        registry.add(ONE, ANN, shared=False)
        registry.set_tags(ONE_ID, ["ann.x"], ANN)
        for user, is_seen in ((ANN, True), (BOB, False), (ADMIN, True)):
            assert [module.module_id for module in registry.modules(user)] == [ONE_ID] * is_seen
            assert [tag.tag for tag in registry.get_tags(user)] == ["ann.x"] * is_seen
        for refused in (
            lambda: registry.resolve(ONE_ID, BOB),
            lambda: registry.resolve("ann.x", BOB),
            lambda: registry.set_tags(ONE_ID, ["bob.x"], BOB),
            lambda: registry.remove(ONE_ID, BOB),
            lambda: registry.share(ONE_ID, BOB),
            lambda: registry.remove_tag("ann.x", BOB),
        ):
            with pytest.raises(NotFoundError):
                refused()
        registry.share(ONE_ID, ANN)
        assert registry.resolve("ann.x", BOB) == registry.resolve(ONE_ID, BOB) == ONE_ID
        with pytest.raises(ForbiddenError):
            registry.remove(ONE_ID, BOB)

    def test_of_two_owners(self, registry: Registry) -> None:
        registry.add(ONE, ANN, shared=False)
        registry.add(ONE, BOB, shared=False)
        assert [module.created_by for module in (*registry.modules(ANN), *registry.modules(BOB))] == ["ann", "bob"]
        registry.remove(ONE_ID, ANN)
        assert (registry.modules(ANN), len(registry.modules(BOB))) == ([], 1)
        assert registry.modules()[0].created_by == "bob"
        registry.remove(ONE_ID, BOB)
        assert registry.modules() == []

    def test_a_record_without_owners_is_shared(self, registry: Registry, tmp_path: Path) -> None:
        """Registries of earlier versions, and of upstream AICI."""
        registry.add(ONE, ANN, shared=False)
        registry.add(TWO, ANN, shared=False)
        files = ModuleFiles(tmp_path / "modules")
        files.record(ONE_ID).write_bytes(b'{"created":7,"auth":{"user":"ann","is_admin":false}}')
        files.record(TWO_ID).unlink()
        told = {
            module.module_id: (module.created, module.created_by, module.shared) for module in registry.modules(BOB)
        }
        assert told == {ONE_ID: (7, "ann", True), TWO_ID: (None, None, True)}
        registry.remove(ONE_ID, ANN)


class TestQuotas:
    """Each module takes 2,000 bytes of Wasm and code, and 4 KiB blocks of records."""

    @pytest.fixture
    def registry(self, tmp_path: Path) -> Registry:
        modules, stored = Quota("modules", "", 4, 3), Quota("MB of modules", "", 1_000, 1_000)
        folder = tmp_path / "modules"
        return Registry(folder, cache_key=KEY, modules=modules, stored_mib=stored, compile=fake_compile, evict=True)

    def used_at(self, tmp_path: Path, module_id: str, at: float) -> None:
        for path in (tmp_path / "modules").glob(f"{module_id}*"):
            os.utime(path, (at, at))

    def test_the_least_recently_used_module_without_a_tag_makes_room(self, registry: Registry, tmp_path: Path) -> None:
        ids = [registry.add(wasm(str(number))[1], ANN).module_id for number in range(3)]
        registry.set_tags(ids[0], ["ann.x"], ANN)
        for at, module_id in enumerate((ids[0], ids[2], ids[1])):
            self.used_at(tmp_path, module_id, at)
        registry.add(ONE, ANN)
        assert {module.module_id for module in registry.modules()} == {ids[0], ids[1], ONE_ID}
        registry.compiled(ids[1])
        registry.add(TWO, ANN)
        assert {module.module_id for module in registry.modules()} == {ids[0], ids[1], TWO_ID}

    def test_modules_with_tags_and_of_others_stay(self, registry: Registry) -> None:
        for number in range(3):
            module_id = registry.add(wasm(str(number))[1], ANN).module_id
            registry.set_tags(module_id, [f"ann.x{number}"], ANN)
        registry.add(ONE, BOB)
        with pytest.raises(QuotaError, match=r"too many modules for one user \(at most 3\)"):
            registry.add(TWO, ANN)
        with pytest.raises(QuotaError, match=r"too many modules \(at most 4\)"):
            registry.add(TWO, ADMIN)
        registry.add(TWO, BOB)  # in the place of its other module
        assert TWO_ID in {module.module_id for module in registry.modules()}
        assert ONE_ID not in {module.module_id for module in registry.modules()}

    def test_code_for_other_machines_counts(self, tmp_path: Path) -> None:
        stored = Quota("MB of modules", "", 1_000, 2)
        registry = Registry(tmp_path / "modules", cache_key=KEY, stored_mib=stored, compile=fake_compile)
        big = b"\0asm" + b"." * 500_000
        module_id = registry.add(big, ANN).module_id
        Registry(tmp_path / "modules", cache_key="other", compile=fake_compile).compiled(module_id)
        with pytest.raises(QuotaError, match="too many MB of modules for one user"):
            registry.add(big + b"x", ANN)
        registry.add(ONE, ANN)

    def test_what_would_not_fit_removes_nothing(self, registry: Registry) -> None:
        registry.add(ONE, ANN)
        with pytest.raises(QuotaError):
            registry.add(TWO, ANN, limits=StorageLimits(modules=3, stored_mib=0))
        assert registry.has(ONE_ID)

    def test_a_second_owner_needs_room(self, registry: Registry) -> None:
        registry.add(ONE, ANN)
        with pytest.raises(QuotaError):
            registry.add(ONE, BOB, limits=StorageLimits(modules=0))
        registry.add(ONE, BOB, limits=StorageLimits(modules=1))


class TestRemoval:
    def test_a_module_with_tags_stays_unless_forced(self, registry: Registry) -> None:
        registry.add(ONE, ANN)
        registry.set_tags(ONE_ID, ["ann.x", "ann.b"], ANN)
        with pytest.raises(InUseError, match=r"has the tags ann\.b, ann\.x") as caught:
            registry.remove(ONE_ID, ANN)
        assert caught.value.hint
        assert registry.remove(ONE_ID, ANN, force=True) == ["ann.b", "ann.x"]
        assert registry.modules() == registry.get_tags() == []
        with pytest.raises(NotFoundError):
            registry.read(ONE_ID)

    def test_it_belongs_to_its_uploader(self, registry: Registry) -> None:
        registry.add(ONE, ANN)
        with pytest.raises(ForbiddenError, match="uploaded by another user"):
            registry.remove(ONE_ID, BOB)
        registry.set_tags(ONE_ID, ["bob.x"], BOB)
        with pytest.raises(ForbiddenError, match=r"the tag bob\.x belongs to another user"):
            registry.remove(ONE_ID, ANN, force=True)
        assert [tag.tag for tag in registry.get_tags()] == ["bob.x"]
        assert registry.remove(ONE_ID, ADMIN, force=True) == ["bob.x"]

    def test_of_a_tag(self, registry: Registry) -> None:
        registry.add(ONE, ANN)
        registry.set_tags(ONE_ID, ["ann.x", "ann.y"], ANN)
        with pytest.raises(ForbiddenError):
            registry.remove_tag("ann.x", BOB)
        registry.remove_tag("ann.x", ANN)
        assert [tag.tag for tag in registry.get_tags()] == ["ann.y"]
        for name in ("ann.x", "../x", ""):
            with pytest.raises(NotFoundError):
                registry.remove_tag(name, ADMIN)
        assert registry.read(ONE_ID) == ONE

    @pytest.mark.parametrize("name", ["", "one", "../" + "0" * 61, "0" * 63])
    def test_of_what_is_no_id(self, registry: Registry, name: str) -> None:
        with pytest.raises(UsageError, match="invalid module_id"):
            registry.remove(name, ADMIN)


def test_what_does_not_compile_is_never_visible(tmp_path: Path) -> None:
    folder = tmp_path / "modules"

    def refuse(source: Path, target: Path) -> None:
        assert Registry(folder, cache_key=KEY).modules() == []
        raise UsageError("no")

    registry = Registry(folder, cache_key=KEY, compile=refuse)
    with pytest.raises(UsageError, match="no"):
        registry.add(ONE, ADMIN)
    assert leftovers(folder) == []
    assert registry.modules() == []


def test_what_does_not_compile_is_compiled_once(tmp_path: Path) -> None:
    compiled = []

    def refuse(source: Path, target: Path) -> None:
        compiled.append(source.read_bytes())
        raise UsageError("no", hint="smaller")

    registry = Registry(tmp_path / "modules", cache_key=KEY, compile=refuse)
    for user in (ANN, BOB, ADMIN):
        with pytest.raises(UsageError, match="no") as refused:
            registry.add(ONE, user)
        assert refused.value.hint == "smaller"
    with pytest.raises(UsageError, match="no"):
        registry.add(TWO, ANN)
    assert compiled == [ONE, TWO]


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ('(module (memory (export "memory") 1))', "does not export aici_init"),
        ("(module)", "does not export its memory"),
        (
            '(module (import "env" "nope" (func)) (memory (export "memory") 1))',
            "imports env.nope, which the runtime does",
        ),
        ('(module (import "env" "aici_host_stop" (func (param i32))))', "imports env.aici_host_stop as (i32) -> ()"),
        ('(module (memory (export "memory") 1) (func (export "aici_init") (param f64)))', "exports aici_init as"),
    ],
)
def test_what_is_no_controller_is_refused(tmp_path: Path, module: str, text: str) -> None:
    registry = Registry(tmp_path, cache_key=KEY)
    with pytest.raises(UsageError) as caught:
        registry.add(wat.binary(module), ADMIN)
    assert caught.value.message.startswith("the module is not a controller; ")
    assert text in caught.value.message
    assert seen(tmp_path) == (frozenset(), {})
    assert leftovers(tmp_path) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    registry = open_registry(tmp_path / "file" / "modules")
    assert registry.modules() == []
    with pytest.raises(UnavailableError, match="cannot write") as caught:
        registry.add(ONE, ADMIN)
    assert "AICI_STORE_DIR" in caught.value.hint


def test_tags_that_somebody_spoilt_are_said_to_be(registry: Registry, tmp_path: Path) -> None:
    registry.add(ONE, ADMIN)
    for content in (b"{", b"[]", b'{"a": {"tag": "a"}}'):
        ModuleFiles(tmp_path / "modules").tags.write_bytes(content)
        with pytest.raises(UnavailableError, match=r"tags\.json is damaged"):
            registry.get_tags()


def test_death_at_every_write() -> None:
    """`killed.py` documents the checks after every kill."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # on a file system without a disk
        command = [sys.executable, "-m", "tests.runtime.support.killed", folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    times = dict(line.split() for line in done.stdout.splitlines())
    assert int(times["killed"]) > 100
    assert int(times["torn"]) > 20


def test_what_somebody_brings_in_right_now_is_not_swept(tmp_path: Path) -> None:
    folder = tmp_path / "modules"
    sweeper = open_registry(folder)

    def compile_slowly(source: Path, target: Path) -> None:
        sweeper.sweep()
        fake_compile(source, target)

    registry = Registry(folder, cache_key=KEY, compile=compile_slowly)
    assert registry.add(ONE, ADMIN).module_id == ONE_ID
    assert seen(folder)[0] == {ONE_ID}


def test_a_module_that_is_removed_while_it_is_compiled_again_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "modules"
    open_registry(folder).add(ONE, ADMIN)

    def compile_slowly(source: Path, target: Path) -> None:
        open_registry(folder).remove(ONE_ID, ADMIN)
        fake_compile(source, target)

    with pytest.raises(NotFoundError, match=f"module {ONE_ID} not found"):
        Registry(folder, cache_key="other", compile=compile_slowly).compiled(ONE_ID)
    assert leftovers(folder) == []


def test_many_processes_at_once(tmp_path: Path) -> None:
    """Kill many writers in turn. Nothing is lost once a writer has reported success."""
    folder = tmp_path / "modules"
    command = [sys.executable, "-m", "tests.runtime.support.hammer", str(folder)]
    workers = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(4)]
    told: list[list[str]] = [[] for _ in workers]

    def listen(number: int) -> None:
        stdout = workers[number].stdout
        assert stdout is not None
        with stdout:
            for line in stdout:
                told[number].append(line.strip())
                if len(told[number]) == 10 * (number + 1):
                    workers[number].kill()

    threads = [threading.Thread(target=listen, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [worker.wait(10) for worker in workers] == [-signal.SIGKILL] * 4
    assert all(len(each) >= 10 * (number + 1) for number, each in enumerate(told))
    registry = open_registry(folder)
    registry.sweep()
    assert leftovers(folder) == []
    tags = seen(folder)[1]
    assert set(tags) >= {tag for each in told for tag in each}


def test_removal_while_it_is_started(runtime: Runtime, cache_dir: Path) -> None:
    """A removed module either starts or is reported as gone. A started guest goes on without the files."""
    module = wat.Module()
    content = module.build(pre=module.log("for removal") + module.answer(wat.PRE_GO))
    registry = Registry(cache_dir / "modules", cache_key=cache_key())
    said = set()
    for number in range(16):
        module_id = runtime.mk_module(content).module_id
        started = runtime.instantiate(req_id=f"rm-{number}", prompt=[1], module_id=module_id, module_arg="")
        if number % 2:
            threading.Event().wait(number / 2000)
        registry.remove(module_id, ADMIN, force=True)
        error = started.exception()
        said.add(None if error is None else _kind_of(error))
        if error is None:
            runtime.discard(f"rm-{number}")
    assert said <= {None, "gone"}


def _kind_of(error: BaseException) -> str:
    assert isinstance(error, AiciError), error
    is_gone = isinstance(error, NotFoundError) or (isinstance(error, ControllerError) and "was removed" in str(error))
    return "gone" if is_gone else str(error)
