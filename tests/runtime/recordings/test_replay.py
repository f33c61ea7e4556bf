"""`aici rt replay` plays a recording of `--trace` and names the first different answer."""

import base64
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aici_base.errors import NotFoundError, UsageError
from aici_base.ids import SeqId, TokenId
from aici_runtime.client import Runtime, RuntimeConfig
from aici_runtime.recordings import recording
from aici_runtime.wire import MidOp, PostOp, PreOp
from tests.runtime.support import tokenizer, wat
from tests.runtime.support.raw import RawEngine

GENEROUS = ("--wasm-max-pre-step-time=2000", "--wasm-max-step-time=2000")


def replay(path: Path, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aici_runtime.main", "replay", str(path), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=os.environ | environment)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def forking(texts: str = "a") -> bytes:
    """A guest that forks at the first step, logs `texts` in mid, and allows tokens 1 and 2, in a fork 3 too."""
    module = wat.Module()
    count = "(global.set $steps (i32.add (global.get $steps) (i32.const 1)))"
    fork = module.answer('{"num_forks":2,"suspend":false,"ff_tokens":[]}')
    pre = f"{count} (if (i32.eq (global.get $steps) (i32.const 1)) (then {fork}) (else {module.answer(wat.PRE_GO)}))"
    bits = "(select (i32.const 6) (i32.const 14) (i32.eq (call $self_seq_id) (i32.const 1)))"
    mid = module.log(texts) + f"(call $allow {bits})" + module.answer(wat.SAMPLE)
    return module.build(pre=pre, mid=mid)


@pytest.fixture(scope="module")
def recorded(byte_level: Path, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record a controller of the store (by tag), forks, a trap, and refused requests."""
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    config = RuntimeConfig(tokenizer=byte_level, cache_dir=cache_dir, max_step_time_ms=5000, max_pre_step_time_ms=5000)
    with Runtime(config) as earlier:
        earlier.wait_ready()
        earlier.set_tags(earlier.mk_module(forking()).module_id, ["forking"])
    with Runtime(replace(config, extra_args=(f"--trace={path}",))) as runtime:
        runtime.wait_ready()
        trap = runtime.mk_module(wat.Module().build(mid=wat.TRAP)).module_id
        for req_id, module_id in (("fork", "forking"), ("trap", trap)):
            runtime.instantiate(req_id=req_id, prompt=[], module_id=module_id, module_arg={"x": 1}).result(10)
        with pytest.raises(NotFoundError):
            runtime.instantiate(req_id="no", prompt=[], module_id="no", module_arg="").result(10)
        with pytest.raises(UsageError):
            runtime.instantiate(req_id="bad", prompt=[TokenId(10**6)], module_id=trap, module_arg="").result(10)
        pre_ops = [PreOp(SeqId(1), "fork"), PreOp(SeqId(2), "trap")]
        runtime.post_pre_process(post_ops=[], pre_ops=pre_ops, freed=[])
        runtime.send_mid([MidOp(SeqId(1)), MidOp(SeqId(3), SeqId(1)), MidOp(SeqId(2))])
        assert runtime.recv_mid().seqs[SeqId(2)].error
        post_ops = [PostOp(SeqId(seq_id), [TokenId(1)]) for seq_id in (1, 3)]
        runtime.post_pre_process(post_ops=post_ops, pre_ops=[], freed=[SeqId(2)])
        asked, ops = [SeqId(1), SeqId(3)], [MidOp(SeqId(1))]
        runtime.send_turn(post_ops=[], pre_ops=[], asked=asked, ops=ops, freed=[])
        assert runtime.recv_turn().mid[SeqId(1)].logs == "a"
        runtime.set_tags(trap, ["trap"])
        assert len(runtime.get_tags()) >= 2
    return path


@pytest.fixture
def trace(recorded: Path, tmp_path: Path) -> Path:
    """Return a copy of the recording for changes."""
    return Path(shutil.copy(recorded, tmp_path))


def test_the_recording_stands_alone(trace: Path) -> None:
    records = lines(trace)
    head = records[0]
    assert (head["suff"], head["cmd"]) == ("", {"op": "tokens"})
    assert "--bias-dtype=bool" in head["aicirt"]["flags"]
    assert not any("cache-dir" in flag or "name" in flag or "trace" in flag for flag in head["aicirt"]["flags"])
    module_id = hashlib.sha256(forking()).hexdigest()
    (implied,) = [line for line in records if line.get("implied")]
    assert base64.b64decode(implied["cmd"]["binary"]) == forking()
    (use,) = [line for line in records if line["cmd"].get("req_id") == "fork"]
    assert use["cmd"]["module_id"] == module_id
    assert records.index(implied) < records.index(use)
    (mid,) = [line for line in records if line["cmd"]["op"] == "mid_process"]
    assert mid["masks"].keys() == {"1", "3"}  # the third has failed
    assert mid["masks"]["1"] != mid["masks"]["3"]
    (turn,) = [line for line in records if line["cmd"]["op"] == "turn_process"]
    assert turn["masks"] == {"1": mid["masks"]["1"]}
    assert (mid["allowed"], turn["allowed"]) == ({"1": 2, "3": 3}, {"1": 2})
    told = [line["texts"] for line in records if "texts" in line]
    assert told == [{"1": b"!".hex()}]  # once, though both sequences append the token
    assert {line["suff"] for line in records} == {"", "-side"}
    assert all(isinstance(line["timestamp"], float) for line in records)


def test_it_plays_the_same(trace: Path) -> None:
    done = replay(trace, AICI_TRACE=str(trace))  # a flag not meant for the replaying runtime
    num_commands = sum(not line.get("implied") for line in lines(trace))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"the same: {num_commands} commands\n", "")


def test_the_first_difference_is_named(trace: Path) -> None:
    """Let the controller answer with a byte more than recorded."""
    other = forking("b")
    text = trace.read_text()
    binary, module_id = base64.b64encode(other).decode(), hashlib.sha256(other).hexdigest()
    text = text.replace(base64.b64encode(forking()).decode(), binary)
    trace.write_text(text.replace(hashlib.sha256(forking()).hexdigest(), module_id))
    done = replay(trace, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    (number,) = [k for k, line in enumerate(lines(trace), 1) if line["cmd"]["op"] == "mid_process"]
    found = {"line": number, "path": "response.data.seqs.1.logs", "recorded": "a", "now": "b"}
    assert json.loads(done.stdout) == {"same": False} | found


def test_a_mask_that_differs_is_found(trace: Path) -> None:
    changed = lines(trace)
    for line in changed:
        if "masks" in line:
            line["masks"]["3"] = ["0" * 16]
    write(trace, changed)
    done = replay(trace)
    assert (done.returncode, done.stderr) == (1, "")
    assert '{"op":"mid_process"' in done.stdout
    assert '\n  masks.3[0]\n  recorded: "0000000000000000"\n  now:      "' in done.stdout


def test_a_runtime_that_dies_is_a_difference(trace: Path) -> None:
    write(trace, [line for line in lines(trace) if not line.get("implied")])
    done = replay(trace, "--aicirt", "/bin/false", "--json")
    assert done.returncode == 1, done.stderr
    assert "the runtime has died" in json.loads(done.stdout)["now"]
    done = replay(trace, "--aicirt", "./no-such-program")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no program ./no-such-program\n")


def test_branches_bad_messages_and_a_stop(byte_level: Path, cache_dir: Path, tmp_path: Path) -> None:
    """Record protocol v2 by hand, with two runtimes writing to a file."""
    path = tmp_path / "trace.jsonl"
    for _ in range(2):
        flags = ("--proto=v2", "--cap-ff-tokens", "--bias-dtype=f16", *GENEROUS, f"--trace={path}")
        raw = RawEngine(byte_level, cache_dir, *flags)
        try:
            binary = base64.b64encode(wat.plain()).decode()
            module_id = raw.side(op="mk_module", binary=binary)["data"]["module_id"]
            (tmp_path / "gone.wasm").write_bytes(wat.plain())
            raw.side(op="mk_module", path=str(tmp_path / "gone.wasm"), **{"$auth": {"user": "root", "is_admin": True}})
            (tmp_path / "gone.wasm").unlink()
            raw.side(op="instantiate", req_id="r", prompt=[1], module_id=module_id, module_arg=None)
            for side, message in itertools.product(("", "-side"), (b"{", b"[]", b"\xff\n")):
                raw.send_bytes(message, side)
                assert raw.receive(side)["type"] == "json-error"
            deep = b'{"op":"instantiate","req_id":"d","prompt":[],"module_id":"%b","module_arg":%b}'
            raw.send_bytes(deep % (module_id.encode(), b"[" * 300 + b"]" * 300), "-side")
            assert "nested too deeply" in raw.receive("-side")["error"]
            op = {"id": 1, "backtrack": 0, "tokens": []}
            raw.call(op="mid_process", freed=[], ops=[op | {"req_id": "r"}])
            raw.call(op="mid_process", freed=[], ops=[op | {"tokens": [2], "sampled": 2}])
            raw.call(op="mid_process", freed=[1], ops=[op | {"id": 9}])
            raw.send_bytes(b'{"op":"stop"}')
            raw.process.wait(20)
        finally:
            raw.close()
    records = lines(path)
    assert [list(line["masks"]) for line in records if "masks" in line] == [["1"]] * 4
    assert records[-1]["resp"] is None
    assert sum("raw" in line for line in records) == 10
    done = replay(path)
    assert (done.returncode, done.stdout) == (0, f"the same: {len(records)} commands\n"), done.stdout + done.stderr


def test_lines_of_many_threads_and_two_processes_stay_whole(byte_level: Path, cache_dir: Path, tmp_path: Path) -> None:
    config = RuntimeConfig(tokenizer=byte_level, cache_dir=cache_dir, extra_args=(f"--trace={tmp_path}/%p.jsonl",))
    with Runtime(config) as runtime, ThreadPoolExecutor(4) as pool:
        runtime.wait_ready()
        path = tmp_path / f"{runtime.pid}.jsonl"
        before = len(lines(path))
        asked = [pool.submit(runtime.set_tags, "x" * length, [str(length)]) for length in range(200)]
        for _ in range(200):
            runtime.ping()
        assert all(isinstance(future.exception(20), UsageError) for future in asked)
    found = lines(path)[before:]
    assert sorted(len(line["cmd"].get("module_id", "")) for line in found) == sorted([*range(200), *[0] * 200])


def test_a_trace_that_cannot_be_written_ends_alone(byte_level: Path, cache_dir: Path) -> None:
    """Start a trace through the environment, as the user of an engine would."""
    command = [sys.executable, "-m", "tests.runtime.support.one_step", str(byte_level), str(cache_dir)]
    environment = os.environ | {"AICI_TRACE": "/dev/full"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert (done.returncode, done.stdout) == (0, "masks\n")
    assert done.stderr.count("the recording ends here: [Errno 28]") == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("x\n", "line 1: not JSON"),
        ("[]\n", "line 1: suff, cmd or resp is missing"),
        ('{"suff":"","cmd":{},"resp":null}\n{"suff":"-","cmd":{},"resp":null}\n', "line 2: ValueError"),
        ('{"suff":"","cmd":{},"resp":null,"raw":"?"}\n', "line 1: ValueError"),
        ('{"suff":"","cmd":{},"resp":null,"implied":true}\n', "line 1: KeyError"),
        ('{"suff":"","cmd":{},"resp":null,"aicirt":{"format":2}}\n', "line 1: format 2 is not supported, only 1"),
        ('{"suff":"","cmd":{},"resp":null,"aicirt":{"format":1}}\n', "line 1: KeyError"),
    ],
)
def test_bad_files(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match=words):
        recording.read(path)


def test_another_tokenizer_is_refused(trace: Path, tmp_path: Path) -> None:
    done = replay(trace, "--tokenizer", str(tokenizer.byte_fallback(tmp_path / "other")))
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not the tokenizer of the recording" in done.stderr


def test_a_recording_of_another_machine(byte_level: Path, trace: Path, tmp_path: Path) -> None:
    """The tokenizer is found by content, under any name."""
    kept = tmp_path / "aici" / "models" / "mine"
    records = lines(trace)
    records[0]["aicirt"]["tokenizer"] = "/somewhere/else"
    write(trace, [line for line in records if line["cmd"]["op"] in ("tokens", "ping")])
    done = replay(trace, AICI_CACHE_DIR=str(tmp_path / "aici"))
    assert done.returncode == 2
    assert records[0]["aicirt"]["tokenizer_sha256"] in done.stderr
    shutil.copytree(byte_level, kept)
    done = replay(trace, AICI_CACHE_DIR=str(tmp_path / "aici"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_recording_of_the_originals_client(byte_level: Path, trace: Path) -> None:
    """The recording has no header for the runtime, and the last line may be cut short."""
    kept = [{name: line[name] for name in ("timestamp", "suff", "cmd", "resp")} for line in lines(trace)]
    assert "post_pre_process" in [line["cmd"]["op"] for line in kept]  # so the recording is of protocol v1
    write(trace, kept)
    done = replay(trace)
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not name its tokenizer" in done.stderr
    with trace.open("a") as file:
        file.write('{"timestamp":1,"su')
    done = replay(trace, "--tokenizer", str(byte_level), "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"same": True, "commands": len(kept)})
