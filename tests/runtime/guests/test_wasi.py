"""Randomness and time, as seen by guests."""

import base64
import itertools
from collections.abc import Callable

import pytest

from aici_runtime.client import Runtime
from aici_runtime.wire import MidOp
from tests.runtime.support import wat
from tests.runtime.support.processes import bind
from tests.runtime.support.raw import RawEngine

_numbers = itertools.count(1)


def random_guest() -> bytes:
    """A guest that logs 12 random letters at the start, and 12 more at every step."""
    letters = """(func $letters (local $k i32)
      (drop (call $random_get (i32.const 0x100) (i32.const 12)))
      (loop $next
        (i32.store8 (i32.add (i32.const 0x100) (local.get $k)) (i32.add (i32.const 97)
          (i32.and (i32.load8_u (i32.add (i32.const 0x100) (local.get $k))) (i32.const 15))))
        (br_if $next (i32.lt_u (local.tee $k (i32.add (local.get $k) (i32.const 1))) (i32.const 12))))
      (call $log (i32.const 0x100) (i32.const 12)))"""
    module = wat.Module()
    return module.build(
        create="(call $letters) (i32.const 1)", pre=module.answer(wat.PRE_GO),
        mid="(call $letters)" + module.answer(wat.SAMPLE), extra=letters,
    )  # fmt: skip


def said(raw: RawEngine, module_id: str, steps: int = 1, **fields: object) -> str:
    number = next(_numbers)
    raw.side(op="instantiate", req_id=f"w{number}", prompt=[], module_id=module_id, module_arg="", **fields)
    pre = raw.call(op="post_pre_process", post_ops=[], pre_ops=[{"id": number, "req_id": f"w{number}"}], freed=[])
    text = pre["data"]["pre_seqs"][str(number)]["logs"]
    for _ in range(steps):
        text += raw.call(op="mid_process", ops=[{"id": number}])["data"]["seqs"][str(number)]["logs"]
    raw.call(op="post_pre_process", post_ops=[], pre_ops=[], freed=[number])
    return str(text)


def test_randomness_comes_from_the_seed(raw: RawEngine) -> None:
    """Start a guest, from the third time on from a template."""
    binary = base64.b64encode(random_guest()).decode()
    module_id = raw.side(op="mk_module", binary=binary)["data"]["module_id"]
    texts = [said(raw, module_id, 2, seed=7) for _ in range(4)]
    assert len(set(texts)) == 1
    assert len({texts[0][:12], texts[0][12:24], texts[0][24:]}) == 3
    assert len({texts[0], said(raw, module_id, 2, seed=8), said(raw, module_id, 2, seed=2**64 - 1)}) == 3
    assert said(raw, module_id, 2) == said(raw, module_id, 2, seed=0)
    for seed in (-1, "7", 2**64, True, 1.0):
        answer = raw.side(op="instantiate", req_id="x", prompt=[], module_id=module_id, seed=seed)
        assert answer["error"].startswith("field seed is not"), seed


def clock_guest() -> bytes:
    """A guest that logs the result and the 8 bytes of both clocks, shifted into letters."""
    nibbles = """(func $show (param $clock i32) (local $k i32)
      (i64.store (i32.const 0x108) (i64.const -1))
      (i32.store8 (i32.const 0x100)
        (i32.add (i32.const 48) (call $clock_time_get (local.get $clock) (i64.const 1) (i32.const 0x108))))
      (loop $next
        (i32.store8 (i32.add (i32.const 0x101) (local.get $k)) (i32.add (i32.const 97) (i32.wrap_i64 (i64.and
          (i64.shr_u (i64.load (i32.const 0x108)) (i64.extend_i32_u (i32.mul (local.get $k) (i32.const 4))))
          (i64.const 15)))))
        (br_if $next (i32.lt_u (local.tee $k (i32.add (local.get $k) (i32.const 1))) (i32.const 7))))
      (call $log (i32.const 0x100) (i32.const 8)))"""
    module = wat.Module()
    body = "(call $show (i32.const 0)) (call $show (i32.const 1))"
    return module.build(mid=body + module.answer(wat.SAMPLE), extra=nibbles)


@pytest.mark.parametrize("resolution_us", [0, 10])
def test_the_clock(start_runtime: Callable[..., Runtime], resolution_us: int) -> None:
    runtime = start_runtime(extra_args=(f"--wasm-timer-resolution-us={resolution_us}",))
    seq_id = bind(runtime, 1, clock_guest())
    texts = []
    for _ in range(2):
        runtime.send_mid([MidOp(seq_id)])
        texts.append(runtime.recv_mid().seqs[seq_id].logs)
    assert all(text.startswith("oppppppp" + "0") for text in texts), texts  # EPERM, without any write
    times = [sum((ord(c) - 97) << 4 * k for k, c in enumerate(text[9:])) for text in texts]
    if resolution_us == 0:
        assert times == [0, 0]
    else:
        assert times[0] != times[1]
