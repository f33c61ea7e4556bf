import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from aici_base.errors import ControllerError, NotFoundError, UsageError
from aici_controllers import zig
from aici_controllers.build import build_guest, build_shipped
from aici_controllers.catalog import guest_names, guest_path
from aici_controllers.object_cache import Part, included, objects_of
from aici_controllers.sdk import sdk_dir, sdk_objects
from tests.support.fake_host import FakeHost, GuestModule
from tests.support.guests import build_test_guest

_CONTROLLERS = Path(__file__).resolve().parents[2] / "controllers"
_VOCABULARY = [b"a", b"b", b"ab", b""]


def test_a_controller_that_does_not_compile(tmp_path: Path) -> None:
    source = tmp_path / "bad.cpp"
    source.write_text('#include "aici/controller.hpp"\nint f() { return nonsense; }\n')
    with pytest.raises(ControllerError, match=r"bad\.cpp(.|\n)*nonsense"):
        build_guest([source], tmp_path / "bad.wasm")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.cpp"]


@pytest.mark.parametrize("changed", ["part.cpp", "include/part.hpp"])
def test_an_object_of_a_file_that_changed_meanwhile_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "cache"))
    source, header = tmp_path / "part.cpp", tmp_path / "include" / "part.hpp"
    header.parent.mkdir()
    header.write_text("int part();\n")
    source.write_text('#include "part.hpp"\nint part() { return 1; }\n')
    part = Part(source=source, root=tmp_path, includes=[tmp_path / "include"], context="")
    real = zig.compile

    def compile_slowly(units: Sequence[zig.Unit]) -> None:
        real(units)
        later = time.time() + 1
        os.utime(tmp_path / changed, (later, later))

    monkeypatch.setattr(zig, "compile", compile_slowly)
    with pytest.raises(ControllerError, match=f"{Path(changed).name} changed while it was compiled"):
        objects_of([part], tmp_path)
    assert not list((tmp_path / "cache").rglob("*.o"))


def test_an_object_depends_on_the_headers_that_its_source_reaches(tmp_path: Path) -> None:
    for name, text in {
        "src/part.cpp": '#include <vector>\n#include "near.hpp"\n  #  include "aici/far.hpp"\n// #include "no.hpp"\n',
        "src/near.hpp": '#pragma once\n#include "../src/near.hpp"\n',
        "include/aici/far.hpp": '#include "aici/further.hpp"\n#include "unknown.hpp"\n',
        "include/aici/further.hpp": "",
        "include/no.hpp": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = included(tmp_path / "src" / "part.cpp", [tmp_path / "include"])
    names = ["include/aici/far.hpp", "include/aici/further.hpp", "src/near.hpp"]
    assert found == [tmp_path / name for name in names]


@pytest.mark.parametrize(("name", "says"), [("x.rs", "not C or C"), ("none.cpp", "does not exist")])
def test_wrong_sources(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        build_guest([tmp_path / name], tmp_path / "out.wasm")


def test_the_shipped_guests(regex_module: GuestModule) -> None:
    assert "regex" in guest_names()
    path = guest_path("regex")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.stat().st_size < 200_000
    with pytest.raises(NotFoundError) as missing:
        guest_path("regx")
    assert missing.value.hint == "did you mean regex?"


def test_guests_are_built_again_only_when_needed(regex_module: GuestModule) -> None:
    out = _CONTROLLERS / "aici_controllers" / "guests"
    before = (out / "regex.wasm").stat().st_mtime_ns
    build_shipped(_CONTROLLERS / "guests", out)
    assert (out / "regex.wasm").stat().st_mtime_ns == before


def test_a_guest_in_plain_c() -> None:
    host = FakeHost(GuestModule(build_test_guest("garbage")), _VOCABULARY, eos=3, arg=b'"Stop"')
    assert host.init_prompt() == {}
    assert host.mid_process() == "Stop"


def test_forced_text() -> None:
    host = FakeHost(GuestModule(build_test_guest("forced")), _VOCABULARY, eos=3, arg=b"abba")
    assert host.pre_process() == {"num_forks": 1, "suspend": False, "ff_tokens": [2, 1, 0]}
    assert host.post_process([2, 1, 0]) == {"stop": True}
    assert host.pre_process()["num_forks"] == 0


def test_splices() -> None:
    host = FakeHost(GuestModule(build_test_guest("splice")), _VOCABULARY, eos=3, arg=b"ab")
    assert host.mid_process() == {"Splice": {"backtrack": 0, "ff_tokens": [2]}}
    assert host.mid_process() == {"SampleWithBias": {}}
    assert host.allowed() == {0, 1, 2, 3}
    assert host.mid_process() == {"Splice": {"backtrack": 1, "ff_tokens": [2]}}


def test_variables() -> None:
    host = FakeHost(GuestModule(build_test_guest("vars")), _VOCABULARY, eos=3)
    assert host.mid_process() == "Stop"
    assert host.log == b"missing\nx=one\nx=one, two\nbytes ok\n"
    assert host.variables == {"x": (2, b"one, two".hex()), 'a "b"': (1, b'\0\xff"'.hex())}


def test_suspension_and_forks() -> None:
    host = FakeHost(GuestModule(build_test_guest("suspend")), _VOCABULARY, eos=3)
    assert [host.pre_process()["suspend"] for _ in range(5)] == [True, True, True, False, False]
    host = FakeHost(GuestModule(build_test_guest("fork")), _VOCABULARY, eos=3)
    assert [host.pre_process()["num_forks"] for _ in range(3)] == [2, 1, 1]


def test_a_controller_that_needs_the_rest_of_the_standard_library(tmp_path: Path) -> None:
    """std::string and unordered_map are linked in a second attempt; printf and a line end reach the log."""
    source = tmp_path / "words.cpp"
    source.write_text(
        """#include <cstdio>
        #include <string>
        #include <unordered_map>
        #include "aici/controller.hpp"
        struct Words : aici::Controller {
          std::unordered_map<int, std::string> words;
          aici::MidResult mid_process(aici::Tokens group) override {
            words[1] = std::to_string(group[0]);
            words[1].append(" words, long enough to be on the heap");
            printf("%s\\n", words[1].c_str());
            return aici::MidResult::stop();
          }
        };
        AICI_EXPOSE(Words)
        """
    )
    # On first use on a machine the linker prints how it builds the library, which is no warning of ours.
    assert build_guest([source], tmp_path / "words.wasm") == ""
    module = GuestModule(tmp_path / "words.wasm")
    assert {entry.name for entry in module.module.imports if entry.module != "env"} == {"fd_write"}
    host = FakeHost(module, _VOCABULARY, eos=3)
    assert host.mid_process([7]) == "Stop"
    assert host.log == b"7 words, long enough to be on the heap\n"


def test_the_same_sources_give_the_same_bytes_wherever_they_are(tmp_path: Path) -> None:
    """With `__FILE__` in the source, which is relative to the built folder."""
    modules = []
    for name in ("one", "another/deeper"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "here.cpp").write_text(
            """#include "aici/controller.hpp"
            struct Here : aici::Controller {
              aici::MidResult mid_process(aici::Tokens) override {
                aici::print(__FILE__);
                return aici::MidResult::stop();
              }
            };
            AICI_EXPOSE(Here)
            """
        )
        build_guest([folder / "here.cpp"], folder / "here.wasm")
        modules.append((folder / "here.wasm").read_bytes())
    assert modules[0] == modules[1]
    host = FakeHost(GuestModule(tmp_path / "one" / "here.wasm"), _VOCABULARY, eos=3)
    host.mid_process()
    assert host.log == b"here.cpp"


def test_calls_take_the_bytes_that_they_need(tmp_path: Path) -> None:
    """Also if folders have spaces in their names."""
    folder = tmp_path / "a b"
    folder.mkdir()
    source = folder / "calls.c"
    source.write_text(
        """extern int rand(void);
        __attribute__((export_name("sum"))) int sum(void) { return rand() + rand(); }"""
    )
    unit = zig.Unit(source=source, out=folder / "calls.o", root=folder, includes=[])
    assert zig.compile([unit]) + zig.link([unit.out], folder / "calls.wasm") == ""
    module = (folder / "calls.wasm").read_bytes()
    assert b"sum" in module
    assert b"\x80\x80\x80\x00" not in module


def test_sources_of_the_sdk_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "cache"))
    source = sdk_dir() / "src" / "utf8.cpp"
    [first] = sdk_objects([source], tmp_path, shipped=tmp_path / "none")
    assert first.parent == tmp_path / "cache" / "sdk"
    mark = first.stat().st_ino
    assert [path.stat().st_ino for path in sdk_objects([source], tmp_path, shipped=tmp_path / "none")] == [mark]
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "elsewhere"))
    [again] = sdk_objects([source], tmp_path, shipped=tmp_path / "none")
    assert again.read_bytes() == first.read_bytes()
    # Without a cache the source is compiled into the folder of this build.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "file"))
    assert [path.parent for path in sdk_objects([source], tmp_path, shipped=tmp_path / "none")] == [tmp_path]
